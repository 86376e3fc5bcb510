//! Bounds of the policies that a node applies: users may write any number, which must not fill the daemon or the
//! kernel. Beyond a bound pods are isolated, never exposed.

/// Policies of one namespace; each is held against each pod of it.
pub const POLICIES_OF_A_NAMESPACE: usize = 500;
/// Bytes of the text of one policy in one direction, its sets included: some 25,000 addresses.
pub const TEXT_OF_A_POLICY: usize = 512 << 10;
/// Bytes of the text of all of one family.
pub const TEXT: usize = 2 << 20;
/// Rules of all policies of one family: each may have two sets, and the kernel's time is quadratic in the sets of a
/// transaction, in which it holds up everything else that uses netlink.
pub const RULES: usize = 3000;
/// Ranges of a rule that leave others out: each is a rule of its own for the kernel, asked one after the other.
pub const EXCEPTIONS: usize = 1000;
