//! What the verbs do alike with all kinds of CSI.

use crate::resource::rules::Rules;

pub(super) const RULES: Rules =
    Rules { structures: &["spec"], allow_unconditional_update: false, return_deleted_object: true, ..Rules::BUILT_IN };
