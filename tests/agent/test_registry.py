"""Agents by name."""

from __future__ import annotations

import threading

import pytest

from convmem.agent import (
    Agent,
    get_agent,
    override_agent,
    register_agent,
    registered_agents,
    unregister_agent,
)
from convmem.exceptions import ConfigurationError, UnknownAgent
from convmem.kernel.kernel import Kernel
from convmem.testing.service import FakeService


def agent():
    return Agent(FakeService(), memory=None)


@pytest.fixture
def helper():
    made = register_agent("helper", agent())
    yield made
    unregister_agent("helper")


def test_a_registered_agent_is_found_by_its_name(helper):
    assert get_agent("helper") is helper
    assert registered_agents()["helper"] is helper


@pytest.mark.parametrize("name", ["nobody", "", "Helper", None, 3])
def test_an_unknown_name_is_404(helper, name):
    with pytest.raises(UnknownAgent) as caught:
        get_agent(name)
    assert caught.value.code == "unknown_agent"
    assert caught.value.status == 404
    assert repr(name) in str(caught.value)


def test_the_same_agent_may_be_registered_again(helper):
    assert register_agent("helper", helper) is helper


def test_another_agent_of_the_same_name_is_refused_unless_it_replaces(helper):
    other = agent()
    with pytest.raises(ConfigurationError, match="'helper' is registered already"):
        register_agent("helper", other)
    assert get_agent("helper") is helper
    register_agent("helper", other, replace=True)
    assert get_agent("helper") is other


def test_only_agents_with_a_name_are_registered():
    with pytest.raises(ConfigurationError, match="takes an Agent, not Kernel"):
        register_agent("kernel", Kernel(FakeService()))
    with pytest.raises(ConfigurationError, match="needs a name"):
        register_agent("", agent())


def test_an_agent_can_be_taken_out():
    register_agent("short-lived", agent())
    unregister_agent("short-lived")
    with pytest.raises(UnknownAgent):
        get_agent("short-lived")
    with pytest.raises(UnknownAgent):
        unregister_agent("short-lived")


def test_an_override_is_undone_also_after_an_error(helper):
    with override_agent("helper", agent()) as other:
        assert get_agent("helper") is other
    assert get_agent("helper") is helper
    with pytest.raises(KeyError), override_agent("new", agent()):
        assert get_agent("new") is not None
        raise KeyError
    with pytest.raises(UnknownAgent):
        get_agent("new")


def test_threads_may_register_at_once():
    names = [f"agent-{n}" for n in range(16)]
    ready = threading.Barrier(len(names))

    def register(name):
        ready.wait(5)
        register_agent(name, agent())

    threads = [threading.Thread(target=register, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert set(names) <= set(registered_agents())
    for name in names:
        unregister_agent(name)
