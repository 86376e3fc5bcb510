//! A number of the configuration, which has its default in its type.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize};

/// `DEFAULT` unless given. A key without a value is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Number<T, const DEFAULT: u64>(T);

impl<T: TryFrom<u64> + Default, const DEFAULT: u64> Default for Number<T, DEFAULT> {
    fn default() -> Self {
        Self(T::try_from(DEFAULT).unwrap_or_default())
    }
}

impl<T, const DEFAULT: u64> From<T> for Number<T, DEFAULT> {
    fn from(number: T) -> Self {
        Self(number)
    }
}

impl<T, const DEFAULT: u64> Deref for Number<T, DEFAULT> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de> + TryFrom<u64> + Default, const DEFAULT: u64> Deserialize<'de> for Number<T, DEFAULT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map_or_else(Self::default, Self))
    }
}
