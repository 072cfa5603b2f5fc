"""LLVM text whose object code has what linking must get right, for every architecture.

A constant table, a function pointer through a slot, data that is written, zeroed data, and calls into the C library.
"""

from __future__ import annotations

TEXT = """
@table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@counter = internal global i64 40
@zeros = internal global [8 x i64] zeroinitializer
@pointer = internal global ptr @scale
@labs.slot = internal constant ptr @labs
declare double @cbrt(double)
declare i64 @labs(i64)
define internal double @scale(double %x, i64 %i) noinline {
  %p = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %t = load volatile double, ptr %p
  %y = fmul double %x, %t
  ret double %y
}
define double @root(double %x, i64 %i) {
  %f = load volatile ptr, ptr @pointer
  %s = call double %f(double %x, i64 %i)
  %r = call double @cbrt(double %s)
  ret double %r
}
define i64 @count() {
  %a = load volatile i64, ptr @counter
  %b = add i64 %a, 1
  store volatile i64 %b, ptr @counter
  %z = load volatile i64, ptr @zeros
  %c = add i64 %b, %z
  ret i64 %c
}
define i64 @distance(i64 %a) {
  %f = load volatile ptr, ptr @labs.slot
  %d = call i64 %f(i64 %a)
  ret i64 %d
}
"""
