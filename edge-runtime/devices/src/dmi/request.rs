//! Parses calls from untrusted bytes. What would be large once parsed is not parsed.

use sampan_dmi::{Message, count, manager};
use sampan_grpc::{Code, Status};

use crate::twins::Request;

/// Longest registration and longest report of twins, bytes. A device holds less.
const REGISTRATION: usize = 16 << 10;
const REPORT: usize = 512 << 10;
/// Most twins in one report.
const TWINS: usize = 1_024;
/// Fields: `reportedDevice`, and `twins` in it.
const PATH_OF_TWINS: [u32; 2] = [2, 1];

fn decode<M: Message + Default>(message: &[u8], most: usize) -> Result<M, Status> {
    if message.len() > most {
        return Err(Status::new(Code::ResourceExhausted, format!("the message is longer than {most} bytes")));
    }
    M::decode(message).map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

/// `path`: path of the method.
///
/// # Errors
/// The method does not exist, or the message is malformed or too large.
pub(crate) fn read(path: &str, message: &[u8]) -> Result<Request, Status> {
    match path {
        manager::MAPPER_REGISTER => decode(message, REGISTRATION).map(Request::Register),
        manager::REPORT_DEVICE_STATES => decode(message, REGISTRATION).map(Request::State),
        manager::REPORT_DEVICE_STATUS if count(message, &PATH_OF_TWINS).is_some_and(|twins| twins > TWINS) => {
            Err(Status::new(Code::ResourceExhausted, format!("the report has more than {TWINS} twins")))
        }
        manager::REPORT_DEVICE_STATUS => decode(message, REPORT).map(Request::Twins),
        _ => Err(Status::new(Code::Unimplemented, format!("no method of {}", manager::SERVICE))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sampan_dmi::{DeviceStatus, ReportDeviceStatusRequest, Twin};

    use super::*;

    const METHODS: [&str; 3] = [manager::MAPPER_REGISTER, manager::REPORT_DEVICE_STATUS, manager::REPORT_DEVICE_STATES];

    fn code(path: &str, message: &[u8]) -> Option<Code> {
        read(path, message).err().map(|status| status.code)
    }

    #[test]
    fn too_large_message_is_refused() {
        let report = |twins: usize| {
            let reported_device = Some(DeviceStatus { twins: vec![Twin::default(); twins], ..DeviceStatus::default() });
            ReportDeviceStatusRequest { reported_device, ..ReportDeviceStatusRequest::default() }.encode_to_vec()
        };
        assert_eq!(code(manager::REPORT_DEVICE_STATUS, &report(TWINS)), None);
        assert_eq!(code(manager::REPORT_DEVICE_STATUS, &report(TWINS + 1)), Some(Code::ResourceExhausted));
        for method in METHODS {
            assert_eq!(code(method, &[]), None);
            assert_eq!(code(method, &vec![0; REPORT + 1]), Some(Code::ResourceExhausted));
            assert_eq!(code(method, &[0x0a, 9]), Some(Code::InvalidArgument));
        }
    }

    #[test]
    fn only_three_methods_exist() {
        for path in ["", "/", "/v1beta1.DeviceManagerService/", "/v1beta1.DeviceMapperService/GetDevice"] {
            assert_eq!(code(path, &[]), Some(Code::Unimplemented), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200), which in 0..3_usize) {
            if let Ok(request) = read(METHODS[which], &bytes) {
                let again = match &request {
                    Request::Register(request) => request.encode_to_vec(),
                    Request::Twins(request) => request.encode_to_vec(),
                    Request::State(request) => request.encode_to_vec(),
                };
                prop_assert_eq!(read(METHODS[which], &again), Ok(request));
            }
        }
    }
}
