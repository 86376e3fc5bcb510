//! What a call of a controller may be, and how its answer is written. Pure: no I/O.

use sampan_grpc::{Code, Status};

/// Longest text of an error, characters.
const MAX_TEXT: usize = 1_024;
/// Services of a controller. `Node` is not among them: volumes on this node are the daemon's.
const SERVICES: [&str; 3] = ["/csi.v1.Identity/", "/csi.v1.Controller/", "/csi.v1.GroupController/"];
/// Longest name of a method, bytes.
const MAX_METHOD: usize = 64;

/// Driver and path of a first line, without its line feed.
///
/// # Errors
/// UNIMPLEMENTED: it does not call a method of a controller.
pub(super) fn parse(head: &[u8]) -> Result<(&str, &str), Status> {
    let parsed = std::str::from_utf8(head).ok().and_then(|head| head.split_once(' '));
    let parsed = parsed.filter(|(_, path)| is_path(path));
    parsed.ok_or_else(|| Status::new(Code::Unimplemented, "only methods of a CSI driver's controller are called"))
}

fn is_path(path: &str) -> bool {
    let method = SERVICES.iter().find_map(|service| path.strip_prefix(service));
    method.is_some_and(|method| {
        !method.is_empty() && method.len() <= MAX_METHOD && method.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// The answer as it is sent: code, length, message or text.
pub(super) fn written(answer: Result<Vec<u8>, Status>) -> Vec<u8> {
    let (code, rest) = match answer {
        Ok(message) => (Code::Ok, message),
        // An error with the code of a success would be read as an empty answer.
        Err(Status { code: Code::Ok, message }) => (Code::Internal, cut(&message)),
        Err(Status { code, message }) => (code, cut(&message)),
    };
    let mut out = Vec::with_capacity(5 + rest.len());
    out.push(code as u8);
    out.extend(u32::try_from(rest.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(rest);
    out
}

fn cut(text: &str) -> Vec<u8> {
    text.chars().take(MAX_TEXT).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_of_a_controller_are_called() {
        let path = "/csi.v1.Controller/CreateVolume";
        assert_eq!(parse(b"d.x /csi.v1.Controller/CreateVolume"), Ok(("d.x", path)));
        for good in ["/csi.v1.Identity/Probe", "/csi.v1.GroupController/CreateVolumeGroupSnapshot"] {
            assert!(parse(format!("d.x {good}").as_bytes()).is_ok(), "{good}");
        }
        for wrong in [
            "",
            "d.x",
            "d.x ",
            "d.x /csi.v1.Node/NodePublishVolume",
            "d.x /csi.v1.SnapshotMetadata/GetMetadataAllocated",
            "d.x /csi.v1.Controller/",
            "d.x /csi.v1.Controller/../Node/NodeUnpublishVolume",
            "d.x /csi.v1.Controller/Create Volume",
            "d.x csi.v1.Controller/CreateVolume",
            "d.x /v1beta1.DevicePlugin/Allocate",
            "d.x  /csi.v1.Identity/Probe",
        ] {
            assert_eq!(parse(wrong.as_bytes()).map_err(|status| status.code), Err(Code::Unimplemented), "{wrong:?}");
        }
        let long = format!("d.x /csi.v1.Controller/{}", "a".repeat(MAX_METHOD + 1));
        assert!(parse(long.as_bytes()).is_err() && parse(b"\xff /csi.v1.Identity/Probe").is_err());
    }

    #[test]
    fn answer_says_its_code_and_length() {
        assert_eq!(written(Ok(b"abc".to_vec())), b"\0\0\0\0\x03abc");
        assert_eq!(written(Ok(Vec::new())), [0; 5]);
        assert_eq!(written(Err(Status::new(Code::Unavailable, "no"))), b"\x0e\0\0\0\x02no");
        assert_eq!(written(Err(Status::new(Code::Ok, "")))[0], Code::Internal as u8);
        let long = written(Err(Status::new(Code::Internal, "\u{fc}".repeat(5_000))));
        assert_eq!(long.len(), 5 + 2 * MAX_TEXT);
    }
}
