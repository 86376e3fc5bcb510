//! Container log files, for who reads them and says how long they stay. The monitor writes them
//! ([`sampan_monitor::logs`]).

pub mod read;
pub mod retain;
