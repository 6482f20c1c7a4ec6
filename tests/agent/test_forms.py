"""The five forms of ``memory``, and all that is none of them."""

from __future__ import annotations

import uuid

import pytest

from convmem.agent import Agent
from convmem.exceptions import InvalidWindow, UnknownMemory, UnknownStore
from convmem.memory import DefaultMemoryProvider
from convmem.stores.local import LocalStore
from convmem.testing.service import FakeService
from tests.kernel.tools import texts

LOCAL = "convmem.stores.local.LocalStore"


@pytest.fixture
def project(settings):
    """A project whose default store is in the process."""
    namespace = uuid.uuid4().hex
    settings.CONVMEM = {
        "STORES": {"default": {"BACKEND": LOCAL, "OPTIONS": {"NAMESPACE": namespace}}},
        "MEMORIES": {
            "short": {
                "BACKEND": "convmem.memory.DefaultMemoryProvider",
                "OPTIONS": {"WINDOW": 1},
            }
        },
    }
    return LocalStore(namespace=namespace)


def remembered(agent, service):
    """Return what the model is sent in the third run of a conversation."""
    for number in range(3):
        agent.run(f"u{number}", "c")
    return texts(service.requests[-1].messages)


ALL = ["u0", "a", "u1", "a", "u2"]


def service():
    return FakeService(["a"], repeat=True)


@pytest.mark.parametrize("given", [{}, {"memory": "default"}], ids=["absent", "name"])
def test_absent_or_default_is_the_shared_default_store_without_window(project, given):
    model = service()
    assert remembered(Agent(model, **given), model) == ALL
    assert len(project.get("c")) == 6
    other = service()
    Agent(other).run("u3", "c")
    assert texts(other.requests[0].messages) == [*ALL, "a", "u3"]


def test_a_window_is_on_the_default_store(project):
    model = service()
    assert remembered(Agent(model, memory={"window": 3}), model) == ["u1", "a", "u2"]
    assert len(project.get("c")) == 6


def test_a_window_of_nothing_shows_the_open_turn(project):
    model = service()
    assert remembered(Agent(model, memory={"window": 0}), model) == ["u2"]


def test_a_store_is_taken_whole(project):
    own, model = LocalStore(namespace=uuid.uuid4().hex), service()
    assert remembered(Agent(model, memory={"store": own}), model) == ALL
    assert len(own.get("c")) == 6
    assert project.get("c") == []


def test_a_store_may_be_an_alias(project):
    model = service()
    assert remembered(Agent(model, memory={"store": "default"}), model) == ALL
    assert len(project.get("c")) == 6


def test_store_and_window_combine(project):
    own, model = LocalStore(namespace=uuid.uuid4().hex), service()
    agent = Agent(model, memory={"store": own, "window": 1})
    assert remembered(agent, model) == ["u2"]
    assert len(own.get("c")) == 6


def test_a_provider_is_taken_as_it_is(project):
    own, model = LocalStore(namespace=uuid.uuid4().hex), service()
    provider = DefaultMemoryProvider(own, window=1)
    agent = Agent(model, memory=provider)
    assert agent.memory_for() is provider
    assert remembered(agent, model) == ["u2"]


@pytest.mark.parametrize("nothing", [None, False])
def test_none_and_false_are_no_memory(project, nothing):
    model = service()
    agent = Agent(model, memory=nothing)
    assert agent.memory_for() is None
    assert remembered(agent, model) == ["u2"]
    assert project.get("c") == []


def test_another_string_is_an_alias(project):
    model = service()
    assert remembered(Agent(model, memory="short"), model) == ["u2"]
    assert len(project.get("c")) == 6


def test_an_unknown_alias_is_named_at_the_first_run(project):
    agent = Agent(service(), memory="nowhere")
    with pytest.raises(UnknownMemory, match="'nowhere'"):
        agent.run("hi", "c")


@pytest.mark.parametrize(
    "wrong",
    [
        True,
        3,
        2.5,
        [],
        {},
        {"windows": 3},
        {"window": 3, "size": 1},
        LocalStore,
        LocalStore(namespace="wrong-form"),
        object(),
        b"default",
    ],
    # No addresses: test processes have to agree on the names.
    ids=lambda form: type(form).__name__,
)
def test_anything_else_is_an_error_that_names_the_forms(wrong):
    with pytest.raises(UnknownMemory) as caught:
        Agent(service(), memory=wrong)
    for form in (
        '"default"',
        '{"window": N}',
        '{"store": store}',
        "a memory provider",
        "None or False",
        'alias of CONVMEM["MEMORIES"]',
    ):
        assert form in str(caught.value)


@pytest.mark.parametrize("wrong", [-1, "3", 1.5, True])
def test_a_wrong_window_is_refused_when_the_agent_is_built(wrong):
    with pytest.raises(InvalidWindow):
        Agent(service(), memory={"window": wrong})


def test_a_wrong_store_is_refused():
    with pytest.raises(UnknownStore):
        Agent(service(), memory={"store": 3})


def test_an_unknown_store_alias_is_named_at_the_first_run(project):
    agent = Agent(service(), memory={"store": "nowhere"})
    with pytest.raises(UnknownStore, match="'nowhere'"):
        agent.run("hi", "c")


def test_agents_can_be_built_before_the_project_is_set_up(settings):
    """Nothing is looked up before the first run."""
    settings.CONVMEM = {"STORES": {"default": {"BACKEND": "nowhere.Store"}}}
    agents = [
        Agent("later"),
        Agent("later", memory="short"),
        Agent("later", memory={"window": 3}),
        Agent("later", memory={"store": "other", "window": 3}),
    ]
    assert len(agents) == 4
