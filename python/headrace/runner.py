# SPDX-License-Identifier: Apache-2.0
"""`run` under the name of the module that Horovod's users import it from."""

from headrace._run import RemoteError, run

__all__ = ["RemoteError", "run"]
