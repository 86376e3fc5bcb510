//! What follows from writes and belongs to the API itself: garbage collection, namespaces, definitions, volumes and the
//! objects that every cluster has.

pub(crate) mod bootstrap;
pub(crate) mod definitions;
pub(crate) mod garbage_collector;
pub(crate) mod root_ca;
pub(crate) mod volume_binder;
