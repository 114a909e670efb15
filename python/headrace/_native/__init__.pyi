# SPDX-License-Identifier: Apache-2.0
# Made by tools/stub.py from the built module.

"""
The core of headrace; use the modules of the package, which document it.
"""

from headrace._native import forecast as forecast

def _raise_for_test(code: str, message: str, with_origin: bool = ...) -> None: ...
