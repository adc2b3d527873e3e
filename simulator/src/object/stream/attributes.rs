//! Attributes of a stream, stored without an effect on the simulated GPU.

use vcuda_driver_api::prelude::*;

/// The value of one attribute, as the API's union holds it.
pub(crate) type Value = [u8; size_of::<CUlaunchAttributeValue>()];

/// Values that were set, by attribute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(Vec<(CUlaunchAttributeID, Value)>);

impl Attributes {
    /// An attribute's value; if never set, its default in a stream of this priority.
    pub(crate) fn value(&self, id: CUlaunchAttributeID, priority: i32) -> Value {
        if let Some((_, value)) = self.0.iter().find(|(known, _)| *known == id) {
            return *value;
        }
        let default = match id {
            CUlaunchAttributeID::PRIORITY => priority.to_ne_bytes(),
            CUlaunchAttributeID::SYNCHRONIZATION_POLICY => CUsynchronizationPolicy::AUTO.0.to_ne_bytes(),
            _ => [0; 4],
        };
        let mut value = [0; size_of::<Value>()];
        value.iter_mut().zip(default).for_each(|(byte, default)| *byte = default);
        value
    }

    /// Sets an attribute.
    pub(crate) fn set(&mut self, id: CUlaunchAttributeID, value: Value) {
        self.0.retain(|(known, _)| *known != id);
        self.0.push((id, value));
    }
}
