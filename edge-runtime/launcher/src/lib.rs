//! Which version of a node's programs runs: the package's, or one that came later, on trial first.
//!
//! Small, and needed by every start of the node: it knows nothing of pods, of the store or of the link but what stands in files.
