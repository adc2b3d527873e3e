//! in work
pub(crate) mod probe {
    pub(crate) fn probe(_: &crate::config::Environment) -> Result<(), crate::failure::Failure> {
        Ok(())
    }
}
pub(crate) fn doctor(
    _: &crate::args::DoctorArgs,
    _: &crate::config::Environment,
) -> Result<(), crate::failure::Failure> {
    Ok(())
}
