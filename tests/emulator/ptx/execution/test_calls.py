"""Calls: registers as parameters, recursion, pointers, the stack, and the functions of CUDA's device runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, EmulatorError, MemoryFault, UnsupportedInstruction

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
Array = np.ndarray[Any, Any]

FACTORIAL = """
.func (.param .b32 r) factorial(.param .b32 n)
{
  .reg .b32 %n, %m, %r; .reg .pred %p;
  .param .b32 x, y;
  ld.param.b32 %n, [n];
  setp.gt.u32 %p, %n, 1;
  @%p bra more;
  st.param.b32 [r], 1;
  ret;
more:
  sub.u32 %m, %n, 1;
  st.param.b32 [x], %m;
  call (y), factorial, (x);
  ld.param.b32 %r, [y];
  mul.lo.u32 %r, %r, %n;
  st.param.b32 [r], %r;
  ret;
}
"""
TRIPLE = """
.func (.param .b32 r) triple(.param .b32 n)
{ .reg .b32 %n; ld.param.b32 %n, [n]; mul.lo.u32 %n, %n, 3; st.param.b32 [r], %n; ret; }
"""
TAKEN = """
.func (.reg .b32 r) taken(.reg .b32 n) { mul.lo.u32 r, n, 3; ret; }
"""
RUNTIME = """
.extern .func (.param .b32 result) vprintf(.param .b64 text, .param .b64 arguments);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 result) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
"""


def launch(functions: str, body: str, *, threads: int = 32, assemble: Any = None) -> tuple[Array, Any]:
    """Run a body that leaves a u32 in %r; the value of each thread, and the launch's report."""
    text = f"""{HEADER}{functions}.visible .entry k(.param .u64 out)
{{
  .reg .b32 %r, %t, %u; .reg .pred %p; .reg .b64 %o, %a, %f;
  mov.u32 %t, %tid.x;
  {body}
  ld.param.u64 %o, [out];
  mul.wide.u32 %a, %t, 4;
  add.s64 %o, %o, %a;
  st.global.u32 [%o], %r;
  ret;
}}
"""
    if assemble is not None:
        assemble(text)
    out = np.zeros(threads, np.uint32)
    return out, Device().load(text)["k"].launch(1, threads, [out])


def call(name: str, argument: str, *, prototype: str = "") -> str:
    """PTX of a call with one .b32 argument and result, into %r."""
    return (
        f"{{ .param .b32 a, b; st.param.b32 [a], {argument}; call (b), {name}, (a){prototype}; ld.param.b32 %r, [b]; }}"
    )


def test_recursion(assemble: Any) -> None:
    """Each lane recurses as deep as it wants, and the registers of every level survive the next."""
    out, _ = launch(FACTORIAL, f"and.b32 %u, %t, 7; {call('factorial', '%u')}", assemble=assemble)
    assert out.tolist() == [[1, 1, 2, 6, 24, 120, 720, 5040][i % 8] for i in range(32)]


def test_recursion_under_divergence() -> None:
    """Lanes that call from the two sides of a branch do not disturb each other."""
    body = (
        f"and.b32 %u, %t, 3; setp.lt.u32 %p, %u, 2; @%p bra low; {call('factorial', '%u')} add.u32 %r, %r, 1000; "
        f"bra done; low: {call('factorial', '4')} done: add.u32 %r, %r, %t;"
    )
    out, _ = launch(FACTORIAL, body)
    assert out.tolist() == [i + (24 if i % 4 < 2 else 1000 + [0, 0, 2, 6][i % 4]) for i in range(32)]


def test_endless_recursion() -> None:
    """A recursion that never ends is a fault that names the function, not an endless run."""
    endless = """
.func f() { call f; ret; }
"""
    with pytest.raises(MemoryFault, match=r"calls deep in f, the frames of a thread take 131072 bytes"):
        launch(endless.replace("{", "{ .param .b32 x; "), "mov.u32 %r, 1; call f;")


def test_register_parameters(assemble: Any) -> None:
    """Functions may take registers, predicates among them, and return one; constants may be passed."""
    functions = """
.func (.reg .b32 r) sum(.reg .b32 x, .reg .b32 y) { add.u32 r, x, y; ret; }
"""
    out, _ = launch(functions, "call (%r), sum, (%t, 5);", assemble=assemble)
    assert out.tolist() == [i + 5 for i in range(32)]
    functions += ".func (.reg .b32 r) chosen(.reg .pred q, .reg .b32 x) { selp.u32 r, 77, x, q; ret; }\n"
    body = "call (%r), sum, (%t, 5); setp.gt.u32 %p, %r, 20; call (%r), chosen, (%p, %r);"
    out, _ = launch(functions, body)  # ptxas assembles predicates as parameters only where it need not call
    assert out.tolist() == [i + 5 if i <= 15 else 77 for i in range(32)]


def test_call_under_a_guard() -> None:
    """A guarded call is made by the lanes where the guard holds."""
    body = (
        "{ .param .b32 a, b; .reg .pred %q; mov.u32 %r, 9; setp.gt.u32 %q, %t, 4; st.param.b32 [a], %t; st.param.b32 "
    )
    body += "[b], 9; @%q call (b), triple, (a); ld.param.b32 %r, [b]; }"
    out, _ = launch(TRIPLE, body)
    assert out.tolist() == [3 * i if i > 4 else 9 for i in range(32)]


def test_pointers(assemble: Any) -> None:
    """Lanes call what their pointers say, from a table in memory and from mov, and meet again afterwards."""
    functions = f"{FACTORIAL}{TRIPLE}.global .align 8 .u64 table[2] = {{factorial, triple}};\n"
    body = f"""
  mov.u64 %f, table; and.b32 %u, %t, 1; mul.wide.u32 %a, %u, 8; add.s64 %f, %f, %a; ld.global.u64 %f, [%f];
  setp.gt.u32 %p, %t, 29; @%p mov.u64 %f, triple; and.b32 %u, %t, 3;
  p: .callprototype (.param .b32 _) _ (.param .b32 _);
  {call("%f", "%u", prototype=", p")} bar.warp.sync -1; activemask.b32 %u; popc.b32 %u, %u;
  mad.lo.u32 %r, %r, 100, %u;"""
    out, _ = launch(functions, body, assemble=assemble)
    values = [3 * (i % 4) if i % 2 or i > 29 else [1, 0, 2, 0][i % 4] for i in range(32)]
    assert out.tolist() == [100 * v + 32 for v in values]


def test_bad_pointers() -> None:
    """A call of what is no function, or of one with other parameters, is a fault."""
    prototype = "p: .callprototype (.param .b32 _) _ (.param .b32 _); "
    with pytest.raises(MemoryFault, match="call of 0x11, which is no function"):
        launch("", f"{prototype} mov.u64 %f, 17; {call('%f', '%t', prototype=', p')}")
    other = ".func (.param .b64 r) other(.param .b32 n) { st.param.b64 [r], 1; ret; }\n"
    with pytest.raises(MemoryFault, match=r"expects \(4,\); other takes \(4,\) and returns \(8,\)"):
        launch(other, f"{prototype} mov.u64 %f, other; {call('%f', '%t', prototype=', p')}")


def test_exit_inside_a_call() -> None:
    """Threads that exit in a function never return; the others do."""
    function = FACTORIAL.replace("st.param.b32 [r], 1;", "setp.eq.u32 %p, %n, 0; @%p exit; st.param.b32 [r], 1;")
    out, _ = launch(function, f"and.b32 %u, %t, 3; {call('factorial', '%u')}")
    assert out.tolist() == [[0, 1, 2, 6][i % 4] for i in range(32)]


def test_alias_and_attributes() -> None:
    """An alias is another name of a function; attributes of functions are read over."""
    functions = f".func .attribute(.unified(1, 2)) nothing() {{ ret; }}\n{TRIPLE}.alias thrice, triple;\n"
    out, _ = launch(functions, call("thrice", "%t"))
    assert out.tolist() == [3 * i for i in range(32)]


def test_stack(assemble: Any) -> None:
    """alloca gives each lane memory of its own, stackrestore gives it back."""
    body = """{ .reg .b64 %s, %e, %l, %n; .reg .b32 %k;
  stacksave.u64 %s; cvt.u64.u32 %n, %t; add.u64 %n, %n, 1; shl.b64 %n, %n, 2; alloca.u64 %a, %n, 16;
  st.local.u32 [%a], %t; shl.b32 %k, %t, 2; cvt.u64.u32 %l, %k; add.u64 %l, %a, %l; st.local.u32 [%l], 5;
  ld.local.u32 %r, [%a]; stackrestore.u64 %s; stacksave.u64 %e; sub.u64 %e, %e, %s; cvt.u32.u64 %k, %e;
  add.u32 %r, %r, %k; }"""
    out, _ = launch("", body, assemble=assemble)
    assert out.tolist() == [5, *range(1, 32)]
    with pytest.raises(MemoryFault, match="alloca of more than"):
        launch("", "mov.u32 %r, 0; alloca.u64 %a, 1000000;")


def test_missing_bodies() -> None:
    """A function that the text does not contain is refused when the text is loaded, by name."""
    launch_device = ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 p, .param .b64 s);\n"
    body = "{ .param .b32 r; .param .b64 p, s; call (r), cudaLaunchDeviceV2, (p, s); }"
    with pytest.raises(UnsupportedInstruction, match="cudaLaunchDeviceV2 has no body") as refusal:
        launch(launch_device, body)
    assert "vprintf, __assertfail, malloc, free" in refusal.value.hint


def text_variable(name: str, text: str) -> str:
    """A .global string."""
    data = text.encode() + b"\0"
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


def test_printf(assemble: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed lines reach standard output and the report, lane by lane, with arguments from each lane's memory."""
    functions = RUNTIME + text_variable("form", "lane %d of %s: %.2f\n") + text_variable("name", "warp")
    body = """{ .param .b64 f, a; .param .b32 r; .local .align 8 .b8 buffer[24]; .reg .f64 %d; .reg .b64 %g;
  setp.lt.u32 %p, %t, 3; mov.u32 %r, 0; @!%p bra skip;
  cvt.rn.f64.u32 %d, %t; mul.f64 %d, %d, 0d3FE0000000000000; mov.u64 %a, buffer;
  st.local.u32 [%a], %t; mov.u64 %g, name; cvta.global.u64 %g, %g; st.local.u64 [%a + 8], %g;
  st.local.f64 [%a + 16], %d;
  cvta.local.u64 %a, %a; mov.u64 %g, form; cvta.global.u64 %g, %g; st.param.b64 [f], %g; st.param.b64 [a], %a;
  call (r), vprintf, (f, a); ld.param.b32 %r, [r]; skip: }"""
    out, report = launch(functions, body, assemble=assemble)
    shown = "lane 0 of warp: 0.00\nlane 1 of warp: 0.50\nlane 2 of warp: 1.00\n"
    assert report.printed == shown == capsys.readouterr().out
    assert out.tolist() == [3] * 3 + [0] * 29


def test_assertion() -> None:
    """A failed assert is a fault in CUDA's words: file, line, function, block, thread, expression."""
    strings = text_variable("m", "x < 3") + text_variable("f", "a.cu") + text_variable("n", "void k()")
    passes = "; ".join(f"mov.u64 %f, {v}; cvta.global.u64 %f, %f; st.param.b64 [{v}{v}], %f" for v in "mfn")
    body = f"""{{ .param .b64 mm, ff, nn, size; .param .b32 line; mov.u32 %r, 0; setp.lt.u32 %p, %t, 5; @%p bra fine;
  {passes}; st.param.b32 [line], 12; st.param.b64 [size], 1; call __assertfail, (mm, ff, line, nn, size); fine: }}"""
    with pytest.raises(
        EmulatorError, match=r"a\.cu:12: void k\(\): block: \[0, 0, 0\], thread: \[5, 0, 0\] Assertion `x < 3`"
    ):
        launch(RUNTIME + strings, body)


def test_heap() -> None:
    """Each lane's malloc is memory of its own, an overrun of which is a fault, as is freeing it twice."""
    allocate = "{ .param .b64 s, p; st.param.b64 [s], 8; call (p), malloc, (s); ld.param.b64 %a, [p]; }"
    release = "{ .param .b64 p; st.param.b64 [p], %a; call free, (p); }"
    out, _ = launch(RUNTIME, f"{allocate} st.u32 [%a + 4], %t; ld.u32 %r, [%a + 4]; {release}")
    assert out.tolist() == list(range(32))
    with pytest.raises(MemoryFault, match="out of bounds of malloc"):
        launch(RUNTIME, f"{allocate} st.u32 [%a + 8], %t; mov.u32 %r, 0;")
    with pytest.raises(MemoryFault, match="which malloc did not give or which was freed"):
        launch(RUNTIME, f"{allocate} {release} {release} mov.u32 %r, 0;")


@pytest.mark.parametrize(
    "call",
    [
        "call (%r), taken, (%a);",
        "call (%a), taken, (%r);",
        "call (%r), taken, (%p);",
        "call (%r), taken, (out);",
        "call (%r), taken, (%r), %r;",
        "call 5, (%r), taken, (%r);",
        "call %r, taken, (%r);",
    ],
)
def test_arguments_that_do_not_fit(call: str, assemble: Any) -> None:
    """A register of another width, a variable, and operands outside of the two lists are refused, as by ptxas."""
    with pytest.raises(EmulatorError, match="taken: "):
        launch(TAKEN, call)
    with pytest.raises(AssertionError):
        launch(TAKEN, call, assemble=assemble)


def test_result_that_is_dropped(assemble: Any) -> None:
    """``_`` drops the result of a call, in a register or a variable."""
    calls = "mov.u32 %r, %t; call (_), taken, (%r); { .param .b32 n; st.param.b32 [n], %t; call (_), triple, (n); }"
    out, _ = launch(TAKEN + TRIPLE, calls, assemble=assemble)
    assert out.tolist() == list(range(32))


BY_ADDRESS = """
.func (.param .align 4 .b8 r[12]) turned(.param .align 4 .b8 n[12], .param .b32 by)
{
  .reg .b32 %x, %i; .reg .b64 %p, %q, %w;
  mov.b64 %p, n;
  mov.b64 %q, r;
  ld.param.b32 %i, [by];
  mul.wide.u32 %w, %i, 4;
  add.s64 %p, %p, %w;
  ld.local.b32 %x, [%p];
  add.u32 %x, %x, 100;
  st.local.b32 [%p], %x;
  ld.param.b32 %x, [n];
  st.local.b32 [%q], %x;
  ld.param.b32 %x, [n+4];
  st.local.b32 [%q+4], %x;
  mov.b32 %x, 7;
  st.local.b32 [%q+8], %x;
  ret;
}
"""
TURN = """
  .reg .b32 %s;
  { .param .align 4 .b8 a[12]; .param .b32 i; .param .align 4 .b8 b[12];
    st.param.b32 [a], %t; st.param.b32 [a+4], 20; st.param.b32 [a+8], 30;
    and.b32 %u, %t, 1; st.param.b32 [i], %u;
    CALL
    ld.param.b32 %r, [b]; ld.param.b32 %s, [b+4]; mad.lo.u32 %r, %s, 1000, %r;
    ld.param.b32 %s, [b+8]; mad.lo.u32 %r, %s, 1000000, %r; }
"""


@pytest.mark.parametrize("pointer", [False, True])
def test_addresses_of_arguments_and_results(pointer: bool, assemble: Any) -> None:
    """A function takes the address of an argument or a result of its own, and finds it in local memory."""
    how = "call (b), turned, (a, i);"
    if pointer:
        kind = "(.param .align 4 .b8 _[12]) _ (.param .align 4 .b8 _[12], .param .b32 _)"
        how = f"mov.u64 %f, turned; kind: .callprototype {kind}; call (b), %f, (a, i), kind;"
    out, report = launch(BY_ADDRESS, TURN.replace("CALL", how), assemble=assemble)
    lanes = np.arange(32)
    first, second = np.where(lanes % 2, lanes, lanes + 100), np.where(lanes % 2, 120, 20)
    np.testing.assert_array_equal(out, first + 1000 * second + 7000000)
    assert report.clean


def test_an_argument_is_a_copy() -> None:
    """What a function writes to an argument by its address is not the caller's."""
    both = "call (b), turned, (a, i); call (b), turned, (a, i);"
    out, _ = launch(BY_ADDRESS, TURN.replace("CALL", both))
    lanes = np.arange(32)
    assert np.array_equal(out % 1000, np.where(lanes % 2, lanes, lanes + 100))


def test_the_address_of_a_variable_of_a_call() -> None:
    """A caller's own variables have none, for ptxas either."""
    with pytest.raises(UnsupportedInstruction, match="a is an argument or result of a call, which has no address"):
        launch("", "{ .param .b32 a; mov.b64 %f, a; }")
