//! What each message of a node does to the bridge's session. Every rule that a node could break is here.

use super::{BridgeEvent, BridgeSession, MAX_REPORT_BYTES, Phase, Size, names};
use crate::SessionError;
use crate::frame::{MAX_REPORT_WEIGHT, shorten};
use crate::message::{ToCloud, ToEdge};
use crate::state::NodeState;
use crate::version::{self, Hello, RefuseReason, Welcome};
use std::time::Duration;

/// Reports a node may have under way; its own window is smaller.
const MAX_REPORTS: usize = 256;

/// Token requests a node may have under way.
const MAX_TOKENS: usize = 64;

/// Objects in doubt that are asked about at once.
const MAX_UNLISTED: usize = 256;

impl BridgeSession {
    pub(super) fn dispatch(&mut self, state: &mut NodeState, message: ToCloud) -> Result<(), SessionError> {
        match (self.phase, message) {
            (Phase::AwaitHello, ToCloud::Hello(hello)) => self.on_hello(state, hello),
            (Phase::AwaitHello, _) => Err(SessionError::violation("a message before the hello")),
            (Phase::Welcome, message) => self.on_message(state, message),
            (Phase::Refused, _) => Ok(()),
        }
    }

    fn on_hello(&mut self, state: &mut NodeState, hello: Hello) -> Result<(), SessionError> {
        let Some(protocol) = version::SUPPORTED.common(hello.protocol) else {
            let (ours, theirs) = (version::SUPPORTED, hello.protocol);
            let message = format!("node speaks {}..{}, bridge {}..{}", theirs.min, theirs.max, ours.min, ours.max);
            return Err(self.refuse(RefuseReason::Protocol, message));
        };
        if hello.node != self.settings.node {
            let message = format!("certificate is for node {}, hello says {}", self.settings.node, hello.node);
            return Err(self.refuse(RefuseReason::WrongNode, message));
        }
        if hello.cluster.as_ref().is_some_and(|c| *c != self.settings.cluster) {
            let message = format!("this bridge serves cluster {}", self.settings.cluster);
            return Err(self.refuse(RefuseReason::WrongCluster, message));
        }
        names::of_interests(&hello.interests)?;
        let resume = hello.position.as_ref().filter(|p| state.is_listed() && state.covers(p)).map(|p| p.seq);
        if resume.is_none() {
            // Another bridge sent its last changes, which may be newer than the state here.
            state.expire();
        }
        self.down.start(resume);
        self.phase = Phase::Welcome;
        let features = version::common_features(self.settings.compress, &hello.features);
        self.compresses = features.iter().any(|feature| feature == version::COMPRESS);
        self.rules.takes = features.iter().any(|feature| feature == version::RULES);
        self.takes_devices = features.iter().any(|feature| feature == version::DEVICES);
        self.takes_api = features.iter().any(|feature| feature == version::API);
        self.raw_streams = self.compresses && features.iter().any(|feature| feature == version::RAW_STREAMS);
        self.control(ToEdge::Welcome(Welcome {
            protocol,
            features,
            cluster: self.settings.cluster.clone(),
            session: self.settings.session,
            stream: state.stream().to_owned(),
            resume: resume.is_some(),
            identity: self.settings.identity.filter(|_| hello.features.iter().any(|f| f == version::RENEW)),
            heartbeat_ms: milliseconds(self.settings.heartbeat),
            repeat_within_ms: self.settings.repeat_within.map(milliseconds),
        }))?;
        self.events.push_back(BridgeEvent::Connected { hello, resumed: resume.is_some() });
        Ok(())
    }

    fn on_message(&mut self, state: &NodeState, message: ToCloud) -> Result<(), SessionError> {
        let stream_event = match message {
            ToCloud::Hello(_) => return Err(SessionError::violation("a second hello")),
            ToCloud::Ack { seq } => {
                self.down.ack(seq)?;
                self.events.push_back(BridgeEvent::Acked { seq });
                None
            }
            ToCloud::Nack { object, reason } => {
                names::of_object(&object.key, &object.uid)?;
                let reason = shorten(reason);
                self.events.push_back(BridgeEvent::Nacked { key: object.key, uid: object.uid, reason });
                None
            }
            ToCloud::Need { keys, done } => return self.down.need(state, &keys, done),
            ToCloud::Unlisted { objects } => {
                if objects.len() > MAX_UNLISTED || !self.down.listed_nothing() {
                    return Err(SessionError::violation(format!("{} objects in doubt", objects.len())));
                }
                objects.iter().try_for_each(|object| names::of_object(&object.key, &object.uid))?;
                self.events.push_back(BridgeEvent::Unlisted(objects));
                None
            }
            ToCloud::Up { id, report } => {
                let (bytes, weight) = (self.decoder.last_size(), self.decoder.last_weight());
                if self.reports.len() >= MAX_REPORTS
                    || self.report_bytes >= MAX_REPORT_BYTES
                    || self.report_weight + weight > MAX_REPORT_WEIGHT
                {
                    return Err(SessionError::violation("more reports under way than any window allows"));
                }
                names::of_report(&report)?;
                let size = Size { bytes, weight };
                if self.reports.insert(id, size).is_some() {
                    return Err(SessionError::violation(format!("report {id} came again while under way")));
                }
                self.report_bytes += bytes;
                self.report_weight += weight;
                self.events.push_back(BridgeEvent::Report { id, report });
                None
            }
            ToCloud::StreamData { stream, data } => self.streams.data(stream, data),
            ToCloud::StreamCredit { stream, bytes } => self.streams.credit(stream, bytes),
            ToCloud::StreamEnd { stream, error } => self.streams.ended(stream, error),
            ToCloud::TokenRequest { id, request } => {
                names::of_token(&request)?;
                if self.tokens.len() >= MAX_TOKENS || !self.tokens.insert(id) {
                    return Err(SessionError::violation("more token requests under way than any node has"));
                }
                self.events.push_back(BridgeEvent::TokenRequest { id, request });
                None
            }
            ToCloud::Renew { csr } => {
                if std::mem::replace(&mut self.renewing, true) {
                    return Err(SessionError::violation("a second certificate request under way"));
                }
                self.events.push_back(BridgeEvent::Renew(csr));
                None
            }
            ToCloud::Interests { namespaces } => {
                names::of_interests(&namespaces)?;
                self.events.push_back(BridgeEvent::Interests(namespaces));
                None
            }
            ToCloud::Devices { batch, devices } => {
                if !self.takes_devices || self.devices.is_some() {
                    return Err(SessionError::violation("news of devices that nobody has asked for"));
                }
                let devices = names::of_devices(&devices)?;
                self.devices = Some(batch);
                self.events.push_back(BridgeEvent::Devices { batch, devices });
                None
            }
            ToCloud::Message { id, left_ms, message } => {
                self.rules.message(id, self.decoder.last_size())?;
                self.events.push_back(BridgeEvent::Message { id, left_ms, message });
                None
            }
            ToCloud::Answer { id, answer } => {
                if self.rules.answered(id)? {
                    self.events.push_back(BridgeEvent::Answer { id, answer });
                }
                None
            }
            ToCloud::Request { id, request } => {
                self.rules.request(id, self.decoder.last_size())?;
                self.events.push_back(BridgeEvent::Request { id, request });
                None
            }
            ToCloud::ApiOpen { stream, request, credit } => {
                if !self.takes_api {
                    return Err(SessionError::violation("a request to the API that was not agreed on"));
                }
                if let Some(request) = self.streams.opened_api(stream, request, credit) {
                    self.events.push_back(BridgeEvent::ApiOpened { stream, request });
                }
                None
            }
            ToCloud::Ping { rtt_ms } => {
                self.rtt_ms = rtt_ms.or(self.rtt_ms);
                return self.control(ToEdge::Pong {});
            }
            ToCloud::Unsupported { .. } | ToCloud::Part { .. } => None,
        };
        self.events.extend(stream_event.map(BridgeEvent::Stream));
        if self.streams.flooded() {
            return Err(SessionError::violation("too many stream frames that need an answer"));
        }
        Ok(())
    }

    pub(super) fn control(&mut self, message: ToEdge) -> Result<(), SessionError> {
        if self.out.control(message) {
            return Ok(());
        }
        Err(SessionError::violation("the node asks for more answers than it reads"))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
