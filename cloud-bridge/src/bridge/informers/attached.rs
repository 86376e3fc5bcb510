//! The attachment of a claim's volume, on its way to a node: a claim is the same for all nodes, its attachment is not.

use std::sync::Arc;

use super::Informers;
use crate::bridge::slim::with_attachment;
use crate::bridge::told::Told;
use crate::bridge::told::kinds::Kind;

impl Informers {
    /// The object as this node gets it.
    pub(super) fn attached(&self, node: &str, object: Arc<Told>) -> Arc<Told> {
        if !Kind::Claim.is(&object.digest.key) || !self.world.takes_csi(node) {
            return object;
        }
        let status = |driver: &str, handle: &str| self.attachments.status(node, driver, handle);
        with_attachment(&object, status).unwrap_or(object)
    }
}
