"""Logarithm, error function, trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

from typing import Any as PyAny
from typing import ClassVar

from .base import Effort, Elementwise, Float, In, op


class _Function(Elementwise):
    """A function of one operand that the kernel IR has under the name `function`."""

    function: ClassVar[str]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.math(self.function, x)


@op(since=13)
class Log(_Function):
    """Natural logarithm; NaN for negative x."""

    x: In[Float]
    function = "log"


@op(since=13)
class Erf(_Function):
    """The error function."""

    x: In[Float]
    function = "erf"


@op(since=7)
class Sin(_Function):
    """Sine of an angle in radians."""

    x: In[Float]
    function = "sin"


@op(since=7)
class Cos(_Function):
    """Cosine of an angle in radians."""

    x: In[Float]
    function = "cos"


@op(since=7)
class Tan(_Function):
    """Tangent of an angle in radians."""

    x: In[Float]
    function = "tan"


@op(since=7)
class Asin(_Function):
    """Inverse sine; NaN outside [-1, 1]."""

    x: In[Float]
    function = "asin"


@op(since=7)
class Acos(_Function):
    """Inverse cosine; NaN outside [-1, 1]."""

    x: In[Float]
    function = "acos"


@op(since=7)
class Atan(_Function):
    """Inverse tangent."""

    x: In[Float]
    function = "atan"


@op(since=9)
class Sinh(_Function):
    """Hyperbolic sine."""

    x: In[Float]
    function = "sinh"


@op(since=9)
class Cosh(_Function):
    """Hyperbolic cosine."""

    x: In[Float]
    function = "cosh"


@op(since=9)
class Asinh(_Function):
    """Inverse hyperbolic sine."""

    x: In[Float]
    function = "asinh"


@op(since=9)
class Acosh(_Function):
    """Inverse hyperbolic cosine; NaN below 1."""

    x: In[Float]
    function = "acosh"


@op(since=9)
class Atanh(_Function):
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""

    x: In[Float]
    function = "atanh"
