//! A mapper: a program that drives devices for a node, over DMI.
//!
//! | module | owns |
//! |---|---|
//! | `mapper` | registration, and which devices there are |
//! | `device` | one device at work |
//! | `plan` | the work for a device, from the data of the node: pure |
//! | `progress`, `health` | when what is done next, and whether a device answers: pure |
//! | `value`, `config_data` | values and configurations between texts and hardware: pure |
//! | `drivers` | hardware |
//! | `edge`, `service` | both ends of DMI, over gRPC at unix sockets |
//! | `written` | which desired values hardware was given |
//! | `once` | troubles are logged once |

pub mod config_data;
pub mod device;
pub mod drivers;
pub mod edge;
pub mod health;
pub mod mapper;
pub mod once;
pub mod plan;
pub mod progress;
pub mod service;
pub mod value;
pub mod written;
