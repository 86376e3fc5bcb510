//! State of one probe: a pure machine over results and thresholds, and the moments at which to probe.
//!
//! Follows the kubelet: a verdict changes after as many equal results in a row as its threshold says; a startup
//! probe ends with its first verdict, a liveness probe with its first failure (the container is replaced then).

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

use crate::pod::event::ProbeKind;

/// Numbers of a probe with the API's defaults filled in (static pods come without them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

impl Settings {
    pub fn of(probe: &Probe) -> Self {
        let number = |value: Option<i32>, default: u32| match value.and_then(|v| u32::try_from(v).ok()) {
            Some(v) if v > 0 => v,
            _ => default,
        };
        let seconds = |value, default| Duration::from_secs(number(value, default).into());
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: number(probe.success_threshold, 1),
            failure_threshold: number(probe.failure_threshold, 3),
        }
    }

    /// Pause before the first probe of a container that started `age` ago. When the verdict is `known` from
    /// before a restart of the daemon, the probes of all pods are spread over the period by `spread` instead of
    /// all running at once.
    pub fn first_pause(&self, age: Duration, known: bool, spread: u32) -> Duration {
        let delay = self.initial_delay.saturating_sub(age);
        if !known {
            return delay;
        }
        let period_ms = u32::try_from(self.period.as_millis()).unwrap_or(u32::MAX).max(1);
        delay.max(Duration::from_millis((spread % period_ms).into()))
    }
}

/// Result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// A success with a warning.
    Warning(String),
    /// Failed, with the text for the event.
    Failure(String),
    /// The probe could not be made; says nothing about the container.
    Error(String),
}

/// What follows from one outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// The verdict that is now in force, if a threshold was reached.
    pub verdict: Option<bool>,
    /// Reason and text of a Warning event.
    pub event: Option<(&'static str, String)>,
    /// No further probes of this container attempt.
    pub done: bool,
}

/// The run of equal results so far.
#[derive(Clone, Debug)]
pub struct Worker {
    kind: ProbeKind,
    settings: Settings,
    last: Option<bool>,
    run: u32,
}

impl Worker {
    pub fn new(kind: ProbeKind, settings: Settings) -> Self {
        Self { kind, settings, last: None, run: 0 }
    }

    /// Takes one outcome.
    pub fn take(&mut self, outcome: &Outcome) -> Conclusion {
        let kind = self.kind.name();
        let (success, event) = match outcome {
            Outcome::Success => (true, None),
            Outcome::Warning(text) => (true, Some(("ProbeWarning", format!("{kind} probe warning: {text}")))),
            Outcome::Failure(text) => (false, Some(("Unhealthy", format!("{kind} probe failed: {text}")))),
            Outcome::Error(text) => {
                let text = format!("{kind} probe errored and resulted in unknown state: {text}");
                return Conclusion { event: Some(("Unhealthy", text)), ..Conclusion::default() };
            }
        };
        self.run = if self.last == Some(success) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(success);
        let needed = if success { self.settings.success_threshold } else { self.settings.failure_threshold };
        let verdict = (self.run >= needed).then_some(success);
        let done = match self.kind {
            ProbeKind::Startup => verdict.is_some(),
            ProbeKind::Liveness => verdict == Some(false),
            ProbeKind::Readiness => false,
        };
        Conclusion { verdict, event, done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(success: u32, failure: u32) -> Settings {
        Settings { success_threshold: success, failure_threshold: failure, ..Settings::of(&Probe::default()) }
    }

    /// `+` and `-` are results, `?` an error; the answer has the verdict in force after each, `!` where it ends.
    fn play(kind: ProbeKind, success: u32, failure: u32, results: &str) -> String {
        let mut worker = Worker::new(kind, settings(success, failure));
        let mut out = String::new();
        for c in results.chars() {
            let outcome = match c {
                '+' => Outcome::Success,
                '-' => Outcome::Failure("no".into()),
                _ => Outcome::Error("odd".into()),
            };
            let conclusion = worker.take(&outcome);
            out.push(match conclusion.verdict {
                Some(true) => '+',
                Some(false) => '-',
                None => '.',
            });
            if conclusion.done {
                out.push('!');
                break;
            }
        }
        out
    }

    #[test]
    fn thresholds() {
        for (kind, success, failure, results, expected) in [
            (ProbeKind::Readiness, 1, 3, "+--+---+", "+..+..-+"),
            (ProbeKind::Readiness, 2, 1, "-+++-+-", "-.++-.-"),
            (ProbeKind::Readiness, 1, 2, "-?-+", "..-+"),
            (ProbeKind::Liveness, 1, 3, "++---+", "++..-!"),
            (ProbeKind::Startup, 1, 3, "--+", "..+!"),
            (ProbeKind::Startup, 1, 2, "--", ".-!"),
        ] {
            assert_eq!(play(kind, success, failure, results), expected, "{kind:?} {results}");
        }
    }

    #[test]
    fn events_are_worded_as_usual() {
        let mut worker = Worker::new(ProbeKind::Liveness, settings(1, 3));
        let text = |c: Conclusion| c.event.map(|(_, text)| text).unwrap_or_default();
        let failed = Outcome::Failure("HTTP probe failed with statuscode: 500".into());
        assert_eq!(text(worker.take(&failed)), "Liveness probe failed: HTTP probe failed with statuscode: 500");
        assert_eq!(
            text(worker.take(&Outcome::Error("no port".into()))),
            "Liveness probe errored and resulted in unknown state: no port"
        );
        assert_eq!(text(worker.take(&Outcome::Success)), "");
    }

    #[test]
    fn defaults_of_the_api() {
        let all = Settings::of(&Probe { period_seconds: Some(0), ..Probe::default() });
        assert_eq!((all.period.as_secs(), all.timeout.as_secs(), all.initial_delay.as_secs()), (10, 1, 0));
        assert_eq!((all.success_threshold, all.failure_threshold), (1, 3));
    }

    #[test]
    fn the_first_probe() {
        let s = Settings { initial_delay: Duration::from_secs(30), ..settings(1, 1) };
        assert_eq!(s.first_pause(Duration::from_secs(10), false, 7), Duration::from_secs(20));
        assert_eq!(s.first_pause(Duration::from_secs(99), false, 7), Duration::ZERO);
        assert_eq!(s.first_pause(Duration::from_secs(99), true, 12_345), Duration::from_millis(2345));
    }
}
