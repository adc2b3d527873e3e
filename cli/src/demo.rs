//! in work
pub(crate) mod tenant {
    pub(crate) fn tenant() -> Result<(), crate::failure::Failure> {
        Ok(())
    }
}
pub(crate) fn demo(
    _: &crate::args::DemoArgs,
    _: &crate::config::Environment,
) -> Result<(), crate::failure::Failure> {
    Ok(())
}
