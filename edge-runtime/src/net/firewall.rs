//! The node's one nft table: masquerade for pod traffic that leaves the node.
