//! Every finding of doctor, provoked: the kernel's files, the network and the services of a machine really have the
//! fault. (Those about the link and the daemon are in `doctor`.)

mod disk;
mod machine;
mod network;
mod proxy;
mod runtime;
mod systemd;
