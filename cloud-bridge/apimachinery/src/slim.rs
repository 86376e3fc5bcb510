//! Objects of which only a part is read. Knows neither a kind nor a client: what they are comes from where it is used.

/// Says that `$slim`, which has a field `metadata` (`ObjectMeta`), is read from where `$full` is, a kind of `kube`: watches
/// of many objects need not hold what nobody asks for.
#[macro_export]
macro_rules! read_as {
    ($slim:ty, $full:ty) => {
        impl ::kube::Resource for $slim {
            type DynamicType = ();
            type Scope = <$full as ::kube::Resource>::Scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
