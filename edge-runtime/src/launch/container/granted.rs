//! Devices of the node that a container is given.

use crate::launch::devices::Grant;
use crate::launch::{oci_spec, user};

/// The nodes as they are now. A container that is not root gets them as its own: that is what they are for.
pub(super) fn granted(grants: &[Grant], user: &user::User) -> std::io::Result<Vec<oci_spec::GrantedDevice>> {
    let one = |grant: &Grant| {
        let error = |why| std::io::Error::other(format!("device {}: {why}", grant.path.display()));
        let mut device = oci_spec::HostDevice::at(&grant.path).map_err(error)?;
        if user.uid != 0 {
            (device.uid, device.gid) = (user.uid, user.gid);
        }
        Ok(oci_spec::GrantedDevice { device, access: grant.access.clone() })
    };
    grants.iter().map(one).collect()
}
