"""The drivers of flows: the same decisions in both worlds, and every way to leave."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from convmem.chat import Completion, TextDelta
from convmem.exceptions import Interrupted
from convmem.kernel.flow import (
    AsyncIteration,
    Iteration,
    aiterate,
    arun,
    emit,
    io,
    iterate,
    many,
    run,
    stream,
    surely,
)
from convmem.messages import Message


class Source:
    """A scripted stream, both halves; ``log`` tells what happened to it."""

    def __init__(self, texts, *, error=None, close_error=None, log=None):
        self.texts = list(texts)
        self.came = []
        self.error = error
        self.close_error = close_error
        self.log = [] if log is None else log

    def completion(self):
        return Completion(message=Message.assistant("".join(self.came)))

    def __iter__(self):
        for text in self.texts:
            self.came.append(text)
            yield TextDelta(text=text)
        if self.error:
            raise self.error

    async def __aiter__(self):
        for delta in Source.__iter__(self):
            await asyncio.sleep(0)
            yield delta

    def close(self):
        self.log.append("closed")
        if self.close_error:
            raise self.close_error

    async def aclose(self):
        await asyncio.sleep(0)
        self.close()

    async def aopen(self):
        return self


def reading(source, *, quiet=False):
    return stream(lambda: source, source.aopen, quiet=quiet)


def note(log, what):
    """An operation that writes ``what`` down, with a real wait in async."""

    async def acall():
        await asyncio.sleep(0)
        log.append(what)
        return what

    def call():
        log.append(what)
        return what

    return io(call, acall)


def failing(error):
    async def acall():
        raise error

    def call():
        raise error

    return io(call, acall)


def keeping(log, flow):
    """A flow that writes down its end when its caller leaves."""
    try:
        return (yield from flow)
    except Interrupted as left:
        text = left.partial.text if left.partial else None
        yield from note(log, ("left", text))
        raise


class Sync:
    """Drives like a synchronous caller."""

    @staticmethod
    def run(flow):
        return run(flow)

    @staticmethod
    def events(flow):
        iteration = iterate(flow)
        return list(iteration), iteration.result

    @staticmethod
    def leave_after(flow, count):
        with iterate(flow) as iteration:
            return [next(iteration) for _ in range(count)]


class Async:
    """Drives like an asyncio caller."""

    @staticmethod
    def run(flow):
        return asyncio.run(arun(flow))

    @staticmethod
    def events(flow):
        async def main():
            iteration = aiterate(flow)
            return [event async for event in iteration], iteration.result

        return asyncio.run(main())

    @staticmethod
    def leave_after(flow, count):
        async def main():
            async with aiterate(flow) as iteration:
                return [await anext(iteration) for _ in range(count)]

        return asyncio.run(main())


both = pytest.mark.parametrize("driver", [Sync, Async], ids=["sync", "async"])


# --- values ---


@both
def test_a_flow_returns_its_value_and_gets_results_of_operations(driver):
    log = []

    def flow():
        first = yield from note(log, 1)
        second = yield from note(log, 2)
        return first + second

    assert driver.run(flow()) == 3
    assert log == [1, 2]


@both
def test_arguments_reach_the_call(driver):
    def call(*args, **kwargs):
        return args, kwargs

    async def acall(*args, **kwargs):
        return args, kwargs

    assert driver.run(io(call, acall, 1, 2, key="k")) == ((1, 2), {"key": "k"})


@both
def test_events_come_in_order_and_the_result_is_there_at_the_end(driver):
    def flow():
        yield from emit(TextDelta(text="a"))
        completion = yield from reading(Source(["b", "c"]))
        yield from emit(TextDelta(text="d"))
        return completion.text

    events, result = driver.events(flow())
    assert [event.text for event in events] == ["a", "b", "c", "d"]
    assert result == "bc"


@both
def test_a_quiet_stream_keeps_its_deltas(driver):
    events, result = driver.events(reading(Source(["b", "c"]), quiet=True))
    assert events == []
    assert result.text == "bc"


@both
def test_a_run_drops_events(driver):
    def flow():
        yield from emit(TextDelta(text="a"))
        return "end"

    assert driver.run(flow()) == "end"


def test_a_result_asked_for_too_early_is_an_error():
    iteration = iterate(emit(TextDelta(text="a")))
    with pytest.raises(RuntimeError, match="iterate to the end"):
        _ = iteration.result
    next(iteration)
    with pytest.raises(RuntimeError, match="iterate to the end"):
        _ = iteration.result
    iteration.close()
    assert list(iteration) == []
    with pytest.raises(RuntimeError, match="iterate to the end"):
        _ = iteration.result


def test_a_flow_that_failed_has_no_result():
    iteration = iterate(failing(OSError("down")))
    with pytest.raises(OSError, match="down"):
        next(iteration)
    assert list(iteration) == []
    with pytest.raises(RuntimeError, match="iterate to the end"):
        _ = iteration.result


async def test_an_async_result_asked_for_too_early_is_an_error():
    iteration = aiterate(emit(TextDelta(text="a")))
    with pytest.raises(RuntimeError, match="iterate to the end"):
        _ = iteration.result
    await iteration.aclose()


def test_the_end_stays_the_end():
    iteration = iterate(note([], "x"))
    assert list(iteration) == []
    assert list(iteration) == []
    assert iteration.result == "x"


# --- errors ---


@both
def test_an_error_of_an_operation_is_raised_where_it_was_asked_for(driver):
    def flow():
        try:
            yield from failing(OSError("down"))
        except OSError as error:
            return f"handled {error}"

    assert driver.run(flow()) == "handled down"


@both
def test_an_error_that_the_flow_lets_pass_reaches_the_caller_as_it_is(driver):
    error = OSError("down")
    with pytest.raises(OSError, match="down") as caught:
        driver.run(failing(error))
    assert caught.value is error
    assert caught.value.__context__ is None


@both
def test_an_error_raised_while_handling_one_has_it_as_context(driver):
    def flow():
        try:
            yield from failing(OSError("down"))
        except OSError:
            yield from failing(KeyError("second"))

    with pytest.raises(KeyError) as caught:
        driver.run(flow())
    assert isinstance(caught.value.__context__, OSError)


@both
def test_a_call_that_raises_stop_iteration_does_not_end_the_flow(driver):
    def flow():
        try:
            yield from failing(StopIteration("inner"))
        except RuntimeError:
            return "an error"
        return "no error"

    assert driver.run(flow()) == "an error"


@both
def test_a_broken_stream_is_closed_and_its_error_reaches_the_flow(driver):
    source = Source(["a"], error=OSError("cut"))
    with pytest.raises(OSError, match="cut"):
        driver.run(reading(source))
    assert source.log == ["closed"]


@both
def test_an_error_of_closing_does_not_cost_the_answer(driver, caplog):
    source = Source(["a"], close_error=OSError("close"))
    assert driver.run(reading(source)).text == "a"
    assert "could not be closed" in caplog.text


@both
def test_an_error_of_closing_does_not_hide_the_error_of_reading(driver):
    source = Source(["a"], error=OSError("cut"), close_error=KeyError("close"))
    with pytest.raises(OSError, match="cut"):
        driver.run(reading(source))


@both
def test_no_error_keeps_its_frames_alive(driver):
    class Marker:
        alive = 0

        def __init__(self):
            Marker.alive += 1

        def __del__(self):
            Marker.alive -= 1

    def flow():
        marker = Marker()
        yield from io(call, acall)
        return marker

    def call():
        raise OSError("down")

    async def acall():
        raise OSError("down")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(OSError, match="down") as caught:
            driver.run(flow())
        del caught
        if driver is Sync:
            assert Marker.alive == 0
    finally:
        gc.enable()
    gc.collect()
    assert Marker.alive == 0


# --- leaving ---


@both
def test_leaving_at_an_event_interrupts_the_flow_which_saves(driver):
    log = []
    events = driver.leave_after(keeping(log, emit(TextDelta(text="a"))), 1)
    assert [event.text for event in events] == ["a"]
    assert log == [("left", None)]


@both
def test_leaving_inside_a_stream_hands_over_what_came_and_closes_it(driver):
    log = []
    source = Source(["a", "b", "c"], log=log)
    driver.leave_after(keeping(log, reading(source)), 2)
    assert log == ["closed", ("left", "ab")]


@both
def test_leaving_a_stream_that_cannot_be_closed_still_saves(driver):
    log = []
    source = Source(["a", "b"], close_error=OSError("close"), log=log)
    driver.leave_after(keeping(log, reading(source)), 1)
    assert log == ["closed", ("left", "a")]


@both
def test_leaving_before_the_start_does_nothing(driver):
    log = []
    driver.leave_after(keeping(log, note(log, "never")), 0)
    assert log == []


@both
def test_what_is_saved_on_leaving_emits_nothing_and_may_use_every_operation(driver):
    log = []

    def flow():
        try:
            yield from emit(TextDelta(text="a"))
        except Interrupted:
            yield from emit(TextDelta(text="late"))
            yield from many([note(log, 1), note(log, 2)])
            completion = yield from reading(Source(["x"]))
            log.append(completion.text)
            raise

    assert [e.text for e in driver.leave_after(flow(), 1)] == ["a"]
    assert sorted(map(str, log)) == ["1", "2", "x"]


@both
def test_an_error_of_the_last_saves_is_thrown_into_the_flow_and_then_logged(
    driver, caplog
):
    log = []

    def flow():
        try:
            yield from emit(TextDelta(text="a"))
        except Interrupted:
            try:
                yield from failing(OSError("store down"))
            except OSError:
                log.append("seen")
                raise

    with caplog.at_level(logging.ERROR):
        driver.leave_after(flow(), 1)
    assert log == ["seen"]
    assert "last saves" in caplog.text
    assert "store down" in caplog.text


@both
def test_a_flow_may_swallow_the_interrupt(driver):
    log = []

    def flow():
        try:
            yield from emit(TextDelta(text="a"))
        except Interrupted:
            yield from note(log, "end")
        return "value"

    driver.leave_after(flow(), 1)
    assert log == ["end"]


@both
def test_whoever_retries_on_every_exception_does_not_retry_for_a_caller_who_left(
    driver,
):
    tries = []

    def retrying():
        for number in range(3):
            try:
                tries.append(number)
                return (yield from emit(TextDelta(text="a")))
            except Exception:  # noqa: BLE001
                continue

    driver.leave_after(retrying(), 1)
    assert tries == [0]


def test_ctrl_c_interrupts_the_flow_and_goes_on():
    log = []
    with pytest.raises(KeyboardInterrupt):
        run(keeping(log, failing(KeyboardInterrupt())))
    assert log == [("left", None)]


def test_ctrl_c_wins_over_an_error_of_the_last_saves(caplog):
    def flow():
        try:
            yield from failing(KeyboardInterrupt())
        except Interrupted:
            yield from failing(OSError("store down"))

    with pytest.raises(KeyboardInterrupt):
        run(flow())
    assert "store down" in caplog.text


def test_ctrl_c_inside_a_stream_hands_over_what_came():
    log = []
    source = Source(["a"], error=KeyboardInterrupt(), log=log)
    with pytest.raises(KeyboardInterrupt):
        run(keeping(log, reading(source)))
    assert log == ["closed", ("left", "a")]


def test_a_dropped_iteration_is_closed():
    log = []
    iteration = iterate(keeping(log, emit(TextDelta(text="a"))))
    next(iteration)
    del iteration
    gc.collect()
    assert log == [("left", None)]


async def test_a_dropped_async_iteration_is_closed_by_its_loop():
    log = []
    iteration = aiterate(keeping(log, emit(TextDelta(text="a"))))
    await anext(iteration)
    del iteration
    gc.collect()
    for _ in range(20):
        await asyncio.sleep(0)
    assert log == [("left", None)]


async def test_an_iteration_left_open_is_closed_with_its_loop():
    log = []

    def main():
        async def reads():
            nonlocal iteration
            iteration = aiterate(keeping(log, emit(TextDelta(text="a"))))
            await anext(iteration)

        asyncio.run(reads())

    iteration = None
    await asyncio.to_thread(main)
    assert log == [("left", None)]


# --- cancelling ---


def waiting(started):
    """An operation that waits for ever, in async only."""

    async def acall():
        started.set()
        await asyncio.Event().wait()

    return io(lambda: None, acall)


async def test_cancelling_a_waiting_operation_saves_in_full_before_it_passes():
    log, started = [], asyncio.Event()

    def flow():
        try:
            yield from waiting(started)
        except Interrupted:
            for number in range(3):
                yield from note(log, number)
            raise

    task = asyncio.create_task(arun(flow()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == [0, 1, 2]


async def test_cancelling_again_and_again_does_not_stop_the_saves():
    log, started, saving = [], asyncio.Event(), asyncio.Event()

    async def slow():
        saving.set()
        for _ in range(5):
            await asyncio.sleep(0)
        log.append("saved")

    def flow():
        try:
            yield from waiting(started)
        except Interrupted:
            yield from io(lambda: None, slow)
            raise

    task = asyncio.create_task(arun(flow()))
    await started.wait()
    task.cancel()
    await saving.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["saved"]


async def test_a_timeout_around_a_run_is_a_timeout():
    log = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await arun(keeping(log, waiting(asyncio.Event())))
    assert log == [("left", None)]


async def test_an_error_of_the_last_saves_does_not_eat_the_cancellation(caplog):
    started = asyncio.Event()

    def flow():
        try:
            yield from waiting(started)
        except Interrupted:
            yield from failing(OSError("store down"))

    task = asyncio.create_task(arun(flow()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "store down" in caplog.text


async def test_cancelling_inside_a_stream_closes_it_and_hands_over_what_came():
    log, started = [], asyncio.Event()

    class Endless(Source):
        async def __aiter__(self):
            self.came.append("a")
            yield TextDelta(text="a")
            started.set()
            await asyncio.Event().wait()

    source = Endless([], log=log)
    task = asyncio.create_task(arun(keeping(log, reading(source))))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["closed", ("left", "a")]


# --- many ---


@both
def test_many_returns_results_in_order_of_the_flows(driver):
    def slow():
        async def acall():
            for _ in range(5):
                await asyncio.sleep(0)
            return "slow"

        return io(lambda: "slow", acall)

    assert driver.run(many([slow(), note([], "quick")])) == ["slow", "quick"]


@both
def test_many_of_nothing_is_nothing(driver):
    assert driver.run(many([])) == []


@both
def test_many_passes_events_on(driver):
    def one(text):
        yield from emit(TextDelta(text=text))
        return text

    events, result = driver.events(many([one("a"), one("b")]))
    assert sorted(event.text for event in events) == ["a", "b"]
    assert result == ["a", "b"]


async def test_many_runs_side_by_side_in_async():
    meeting = asyncio.Barrier(3)

    async def meet():
        async with asyncio.timeout(5):
            await meeting.wait()
        return True

    assert await arun(many([io(lambda: None, meet) for _ in range(3)])) == [True] * 3


def test_many_runs_in_one_thread_in_sync():
    def where():
        return threading.get_ident()

    flows = [io(where, None) for _ in range(3)]
    assert set(run(many(flows))) == {threading.get_ident()}


@both
def test_the_first_error_of_many_ends_the_others(driver):
    log, started = [], []

    def other():
        async def acall():
            await asyncio.Event().wait()

        started.append(True)
        try:
            yield from io(lambda: None, acall)
        except Interrupted:
            yield from note(log, "other left")
            raise

    with pytest.raises(OSError, match="one failed"):
        driver.run(many([failing(OSError("one failed")), other()]))
    if driver is Async:
        assert log == ["other left"]
    else:
        assert started == []  # in order: it never began


@both
def test_a_flow_may_handle_the_error_of_many_and_go_on(driver):
    def flow():
        try:
            yield from many([failing(OSError("x")), note([], 1)])
        except OSError:
            return (yield from note([], "went on"))

    assert driver.run(flow()) == "went on"


@both
def test_leaving_inside_many_interrupts_each_flow_and_then_the_parent(driver):
    log = []

    def one(text):
        def flow():
            yield from emit(TextDelta(text=text))
            yield from waiting(asyncio.Event())

        return keeping(log, flow())

    def parent():
        try:
            yield from many([one("a"), one("b")])
        except Interrupted:
            yield from note(log, "parent")
            raise

    driver.leave_after(parent(), 1)
    assert log[-1] == "parent"
    assert ("left", None) in log


async def test_cancelling_inside_many_waits_for_the_saves_of_every_flow():
    log, started = [], [asyncio.Event(), asyncio.Event()]
    flows = [keeping(log, waiting(event)) for event in started]
    task = asyncio.create_task(arun(many(flows)))
    for event in started:
        await event.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == [("left", None)] * 2


@both
def test_many_nests(driver):
    inner = [many([note([], 1), note([], 2)]), many([note([], 3)])]
    assert driver.run(many(inner)) == [[1, 2], [3]]


# --- surely ---


@both
def test_what_must_be_done_is_done_again_when_the_caller_leaves_in_the_middle(driver):
    log = []

    def once():
        yield from note(log, "begin")
        yield from emit(TextDelta(text="a"))
        yield from note(log, "end")

    driver.leave_after(surely(once), 1)
    assert log == ["begin", "begin", "end"]


@both
def test_what_is_done_in_peace_is_done_once(driver):
    log = []
    assert driver.run(surely(lambda: note(log, "x"))) == "x"
    assert log == ["x"]


def test_both_iterations_are_context_managers_of_their_kind():
    assert isinstance(iterate(note([], 1)), Iteration)
    assert isinstance(aiterate(note([], 1)), AsyncIteration)
