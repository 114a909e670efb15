# SPDX-License-Identifier: Apache-2.0
"""What the Horovod fronts of all frameworks share, under the names that scripts import."""
