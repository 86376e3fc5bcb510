//! Rtnetlink over a plain socket: just the messages a bridge network needs.
