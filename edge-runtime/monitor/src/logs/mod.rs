//! Container log files in the CRI format (`TIME STREAM P|F LINE`), in the layout of the kubelet: names, form and writing.
//!
//! The monitor writes them; the daemon and the command line read them. Knows nothing of pods beyond a file's path.

pub mod cri;
pub mod folder;
mod limit;
mod losses;
pub mod rotate;
pub mod write;
