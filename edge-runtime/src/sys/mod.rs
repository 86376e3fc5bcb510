//! Small facts about and calls to the host kernel. Knows nothing of pods.
