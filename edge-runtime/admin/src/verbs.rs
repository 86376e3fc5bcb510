//! The verbs of this program, one file each. `edge-runtime` has their names for its help (`cli::ADMIN_VERBS`).

use edge_runtime::cli::verb::Verb;

pub(crate) const VERBS: &[Verb] = &[];
