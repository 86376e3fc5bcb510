//! What a mapper asks of this node.

use sampan_dmi::{MapperRegisterRequest, ReportDeviceStatesRequest, ReportDeviceStatusRequest};
use sampan_grpc::{Code, Status};

/// A request of a mapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Register(MapperRegisterRequest),
    Twins(ReportDeviceStatusRequest),
    State(ReportDeviceStatesRequest),
}

/// Answer until the daemon has sent all objects.
pub(super) fn not_ready() -> Status {
    Status::new(Code::Unavailable, "which devices there are is not known yet")
}
