# SPDX-License-Identifier: Apache-2.0
"""Version of headrace, in one place."""

__version__ = "0.1.0"
