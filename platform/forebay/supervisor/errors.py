"""What can go wrong while the platform is started, run or stopped."""


class SupervisorError(Exception):
    """The platform cannot be started or stopped as asked; the message says what to do."""


class BadSetting(SupervisorError):
    """A variable of the environment or an option breaks a rule."""


class AlreadyRunning(SupervisorError):
    """Another supervisor holds this data directory; `login_url` signs in once more."""

    def __init__(self, data_dir: object, url: str | None, login_url: str | None = None) -> None:
        super().__init__(f"Forebay is already running on {data_dir}" + (f" at {url}" if url else ""))
        self.url = url
        self.login_url = login_url


class CannotStart(SupervisorError):
    """A part of the platform did not become ready; the end of its log is in the message."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} did not start: {reason}")


class StopRequested(Exception):
    """Somebody asked to stop while the platform was starting."""
