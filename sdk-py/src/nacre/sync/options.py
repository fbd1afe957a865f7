"""Options of the operations."""

from ..options import *  # noqa: F403
from ..transactions import (
    TransactionConfig as TransactionConfig,
)
from ..transactions import (
    TransactionGetMultiOptions as TransactionGetMultiOptions,
)
from ..transactions import (
    TransactionGetMultiReplicasFromPreferredServerGroupOptions as TransactionGetMultiReplicasFromPreferredServerGroupOptions,  # noqa: E501
)
from ..transactions import (
    TransactionGetOptions as TransactionGetOptions,
)
from ..transactions import (
    TransactionGetReplicaFromPreferredServerGroupOptions as TransactionGetReplicaFromPreferredServerGroupOptions,  # noqa: E501
)
from ..transactions import (
    TransactionInsertOptions as TransactionInsertOptions,
)
from ..transactions import (
    TransactionOptions as TransactionOptions,
)
from ..transactions import (
    TransactionQueryOptions as TransactionQueryOptions,
)
from ..transactions import (
    TransactionReplaceOptions as TransactionReplaceOptions,
)
from ..views import ViewOptions as ViewOptions
