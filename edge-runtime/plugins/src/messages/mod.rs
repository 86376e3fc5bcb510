//! Messages of the gRPC services, and the paths of their methods. Fields are those of Kubernetes, in
//! `staging/src/k8s.io/kubelet/pkg/apis`, and of CSI. Unknown fields are skipped; lists and names have limits.
//!
//! | file | service |
//! |---|---|
//! | `registration` | `v1beta1.Registration`, which a plugin calls |
//! | `device_plugin` | `v1beta1.DevicePlugin`, which this helper calls |
//! | `allocated` | the answer of its `Allocate` |
//! | `plugin_registration` | `pluginregistration.Registration`, which this helper calls |
//! | `csi` | `csi.v1.Node`, which this helper calls for a volume |
//! | `csi_driver` | `csi.v1.Identity` and `csi.v1.Node`: what a driver says of itself |
//! | `pod_resources` | `v1.PodResourcesLister`, which clients call |

pub(crate) mod allocated;
pub(crate) mod csi;
pub(crate) mod csi_driver;
pub(crate) mod device_plugin;
pub(crate) mod plugin_registration;
pub(crate) mod pod_resources;
pub(crate) mod registration;

/// Adds to a list with a limit.
///
/// # Errors
/// The list is full.
fn push<T>(list: &mut Vec<T>, item: T, most: usize, what: &str) -> Result<(), String> {
    if list.len() >= most {
        return Err(format!("there are more than {most} {what}"));
    }
    list.push(item);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(devices) = device_plugin::devices(&bytes) {
                prop_assert!(devices.is_sorted_by(|a, b| a.id < b.id));
            }
            let _ = device_plugin::preferred(&bytes);
            let _ = allocated::Allocated::read(&bytes);
            let _ = csi_driver::plugin_name(&bytes);
            let _ = csi_driver::NodeInfo::read(&bytes);
            let _ = csi_driver::Capabilities::read(&bytes);
            let _ = plugin_registration::Info::read(&bytes);
            let _ = registration::Register::read(&bytes);
            let _ = pod_resources::asked("/v1.PodResourcesLister/Get", &bytes);
        }
    }
}
