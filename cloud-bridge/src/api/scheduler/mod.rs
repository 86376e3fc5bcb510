//! A small scheduler: finds a node for each pod that has none, binds it, and says why when it cannot. What a
//! node must offer is decided in `fit` and `place`, pure; this file only watches and writes, through the same
//! API that any client uses.
