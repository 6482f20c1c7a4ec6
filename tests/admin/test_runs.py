"""The list of runs and the page of one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from convmem.admin import RunAdmin
from convmem.messages import Message
from convmem.models import Run
from tests.admin.conftest import START, page_url


def run_url(name: str, *args) -> str:
    return reverse(f"admin:convmem_run_{name}", args=args)


def add(**fields) -> Run:
    given = {
        "agent_name": "support",
        "owner_name": "user",
        "owner_id": "42",
        "conversation_id": "c-1",
        "status": "completed",
        "input": '[{"role":"user","content":"Hi \\u00c5sa"}]',
        "output": '[{"role":"assistant","content":"Hello"}]',
        "model": "gpt-4o",
        "input_tokens": 0,
        "output_tokens": 7,
        "created_at": START,
        "started_at": START,
        "finished_at": START + timedelta(seconds=1.25),
    }
    return Run.objects.create(**{**given, **fields})


def listed(client, **query) -> list[str]:
    response = client.get(run_url("changelist"), query)
    assert response.status_code == 200
    return [run.agent_name for run in response.context["cl"].result_list]


def test_the_list_says_who_what_and_how_it_ended(db, staff) -> None:
    add()
    add(status="failed", error_code="provider_timeout", input_tokens=None)
    add(status="queued", input_tokens=None, output_tokens=None, finished_at=None)
    page = staff.get(run_url("changelist")).content.decode()
    assert "<bdi>user:42</bdi>" in page
    assert '<td class="field-tokens">0 / 7</td>' in page
    assert '<td class="field-tokens">? / 7</td>' in page
    assert '<td class="field-tokens">-</td>' in page
    assert '<td class="field-duration">1.2</td>' in page
    assert "provider_timeout" in page
    assert "convmem-badge-queued" in page


def test_search_and_filters(db, staff) -> None:
    first = add(agent_name="one")
    add(agent_name="two", conversation_id="c-2", status="failed")
    assert listed(staff, q=str(first.pk)) == ["one"]
    assert listed(staff, q="c-2") == ["two"]
    assert listed(staff, q="nothing like it") == []
    assert listed(staff, agent="two") == ["two"]
    assert listed(staff, status__exact="completed") == ["one"]


def test_the_page_of_a_run_shows_input_output_and_error(make, staff) -> None:
    conversation = make([Message.user("Hi")], "c-1")
    run = add(error_code="provider_error", error_message="It <b>broke</b>.")
    page = staff.get(run_url("change", run.pk)).content.decode()
    assert "&quot;content&quot;: &quot;Hi Åsa&quot;" in page
    assert "&quot;content&quot;: &quot;Hello&quot;" in page
    assert "It &lt;b&gt;broke&lt;/b&gt;." in page
    assert f'<a href="{page_url("transcript", conversation.pk)}">' in page


@pytest.mark.parametrize("other", [{"conversation_id": "c-9"}, {"owner_id": "43"}])
def test_a_run_links_only_to_its_owners_conversation(make, staff, other) -> None:
    conversation = make([Message.user("Hi")], "c-1")
    page = staff.get(run_url("change", add(**other).pk)).content.decode()
    assert page_url("transcript", conversation.pk) not in page


def test_input_that_is_no_json_is_shown_as_it_is(db, staff) -> None:
    page = staff.get(run_url("change", add(input="{half").pk)).content.decode()
    assert ">{half</pre>" in page


def test_runs_are_read_only(db, staff) -> None:
    run = add()
    assert staff.get(run_url("add")).status_code == 403
    assert (
        staff.post(run_url("change", run.pk), {"status": "failed"}).status_code == 403
    )
    run.refresh_from_db()
    assert run.status == "completed"


def test_content_can_be_kept_from_staff(db, staff, monkeypatch) -> None:
    monkeypatch.setattr(RunAdmin, "has_view_content_permission", lambda *args: False)
    page = staff.get(run_url("change", add().pk)).content.decode()
    assert "Åsa" not in page
    assert "gpt-4o" in page


def test_the_list_reads_no_long_texts_in_a_constant_number_of_queries(
    db, staff, django_assert_max_num_queries, django_assert_num_queries
) -> None:
    add()
    with django_assert_max_num_queries(10) as few:
        listed(staff)
    assert not [q for q in few if '"input"' in q["sql"]]
    for _ in range(20):
        add()
    with django_assert_num_queries(len(few)):
        assert len(listed(staff)) == 21
