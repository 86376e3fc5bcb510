//! The rules of the core, told as news and what follows.
