//! Why a plugin's devices cannot be had, in the kubelet's words (K8s pkg/kubelet/cm/devicemanager/manager.go,
//! `devicesToAllocate`).

use crate::pod::refusal::Refusal;

/// What is missing of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// No plugin has it now.
    Unregistered,
    NoneHealthy,
    /// Some that the container has had.
    OwnUnhealthy,
    TooFew {
        requested: usize,
        available: usize,
    },
}

impl Shortage {
    pub fn text(self, resource: &str) -> String {
        match self {
            Self::Unregistered => format!("cannot allocate unregistered device {resource}"),
            Self::NoneHealthy => {
                format!("no healthy devices present; cannot allocate unhealthy devices {resource}")
            }
            Self::OwnUnhealthy => format!(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            ),
            Self::TooFew { requested, available } => format!(
                "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
            ),
        }
    }
}

/// Refuses a pod whose allocation failed because of `why` (K8s pkg/kubelet/cm/admission, `unexpectedAdmissionError`).
pub fn refusal(why: &str) -> Refusal {
    Refusal {
        reason: "UnexpectedAdmissionError".to_owned(),
        message: format!("Allocate failed due to {why}, which is unexpected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_kubelets() {
        let short = Shortage::TooFew { requested: 2, available: 1 };
        let refused = refusal(&short.text("example.com/gpu"));
        assert_eq!(refused.reason, "UnexpectedAdmissionError");
        assert_eq!(
            refused.message,
            "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, \
             Available: 1, which is unexpected"
        );
        assert_eq!(Shortage::Unregistered.text("r"), "cannot allocate unregistered device r");
        let unhealthy = "cannot allocate unhealthy devices r";
        assert_eq!(Shortage::NoneHealthy.text("r"), format!("no healthy devices present; {unhealthy}"));
        let own = "previously allocated devices are no longer healthy";
        assert_eq!(Shortage::OwnUnhealthy.text("r"), format!("{own}; {unhealthy}"));
    }
}
