"""The parameters of Open MPI that runs set, and what both versions call them.

PRRTE, the launcher of 5, translates names of 4. `ompi_info` and `prte_info` list the names that a version has.
"""

from __future__ import annotations

PARAMETERS: dict[str, tuple[str, str]] = {
    "plm_rsh_agent": ("plm_rsh_agent", "plm_ssh_agent"),
    "plm_rsh_no_tree_spawn": ("plm_rsh_no_tree_spawn", "plm_ssh_no_tree_spawn"),
    "plm_rsh_num_concurrent": ("plm_rsh_num_concurrent", "plm_ssh_num_concurrent"),
    "plm_ssh_num_concurrent": ("", "plm_ssh_num_concurrent"),
    "orte_keep_fqdn_hostnames": ("orte_keep_fqdn_hostnames", ""),
    "prte_keep_fqdn_hostnames": ("", "prte_keep_fqdn_hostnames"),
    "prte_do_not_resolve": ("", "prte_do_not_resolve"),
    "oob_tcp_if_include": ("oob_tcp_if_include", "prte_if_include"),
    "oob_tcp_keepalive_time": ("oob_tcp_keepalive_time", "oob_tcp_keepalive_time"),
    "oob_tcp_keepalive_intvl": ("oob_tcp_keepalive_intvl", "oob_tcp_keepalive_intvl"),
    "oob_tcp_keepalive_probes": ("oob_tcp_keepalive_probes", "oob_tcp_keepalive_probes"),
    "pml": ("pml", "pml"),
    "btl": ("btl", "btl"),
    "btl_tcp_if_include": ("btl_tcp_if_include", "btl_tcp_if_include"),
    # 5 finds out by itself what it may use between processes of one machine.
    "btl_vader_single_copy_mechanism": ("btl_vader_single_copy_mechanism", ""),
}
"""By the name that runs set: the name in 4 and in 5, or nothing if a version ignores it."""
