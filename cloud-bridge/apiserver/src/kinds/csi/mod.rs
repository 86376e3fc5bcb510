//! The kinds of CSI: drivers, the drivers of each node, what a driver can still store, attachments of volumes to nodes, and
//! classes of attributes. They follow pkg/apis/storage and pkg/registry/storage of Kubernetes 1.36.

mod attachment;
mod attributes_class;
mod capacity;
mod driver;
mod node;
mod rules;

pub(crate) use attachment::KIND as VOLUME_ATTACHMENT;
pub(crate) use attributes_class::KIND as ATTRIBUTES_CLASS;
pub(crate) use capacity::KIND as STORAGE_CAPACITY;
pub(crate) use driver::KIND as DRIVER;
pub(crate) use node::KIND as NODE;
