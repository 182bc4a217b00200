"""Settings: the environment is read here and nowhere else."""

from pathlib import Path
from typing import Any

from csp.constants import NONCE, NONE, SELF

from web.environment import database, env_bool, env_int, env_list, env_networks, env_text, secret_key
from web.logs import logging_settings

ROOT = Path(__file__).resolve().parent.parent.parent
DATA_DIR = Path(env_text("FOREBAY_DATA") or ROOT / ".forebay").resolve()
ARTIFACT_DIR = Path(env_text("FOREBAY_ARTIFACTS") or DATA_DIR / "artifacts")

DEBUG = env_bool("FOREBAY_DEBUG")
SECRET_KEY = secret_key(DATA_DIR)
PUBLIC_URL = env_text("FOREBAY_URL", "http://127.0.0.1:8000").rstrip("/")
IS_HTTPS = PUBLIC_URL.startswith("https://")
ALLOWED_HOSTS = env_list("FOREBAY_ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env_list("FOREBAY_TRUSTED_ORIGINS", [PUBLIC_URL] if IS_HTTPS else [])

INSTALLED_APPS = [
    "web",
    "tuning",
    "telemetry",
    "jobs",
    "cluster",
    "journal",
    "web.admin_site.SuperuserAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.contrib.humanize",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
]
MIDDLEWARE = [
    "web.middleware.RequestTrail",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "web.middleware.NoOtherSites",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "web.idempotency.RememberAnswers",
]
ROOT_URLCONF = "web.urls"
ASGI_APPLICATION = "web.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "frontend" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
            ]
        },
    }
]

DATABASES = {"default": database(env_text("DATABASE_URL", "postgresql://forebay@/forebay"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "cluster.User"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "sign-in"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = Path(env_text("FOREBAY_STATIC") or ROOT / "staticfiles")
STATICFILES_DIRS = [ROOT / "frontend" / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "web.assets.LeanFinder",
    "web.assets.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "web.assets.PackedStorage"
    },
}

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SECURE_SSL_REDIRECT = IS_HTTPS and env_bool("FOREBAY_SSL_REDIRECT", True)
SECURE_HSTS_SECONDS = 31_536_000 if IS_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = IS_HTTPS
if env_bool("FOREBAY_BEHIND_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        # Plotly sizes its charts with style attributes; scripts stay strict.
        "style-src": [SELF, "'unsafe-inline'"],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "manifest-src": [SELF],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000_000

# What the broker carries are ids only; nothing is ever unpickled.
BROKER_URL = env_text("BROKER_URL", "redis://127.0.0.1:6379/0")
RAY_ADDRESS = env_text("RAY_ADDRESS")
RAY_AUTH_TOKEN = env_text("RAY_AUTH_TOKEN")
EVENTS_KEPT = env_int("FOREBAY_EVENTS_KEPT", 50_000, least=10)
TRIAL_SILENCE_S = env_int("FOREBAY_TRIAL_SILENCE_S", 600, least=5)
# Deadline slack, then fair share, then arrival; changed for a running platform on the page of the queue.
QUEUE_POLICY = env_text("FOREBAY_QUEUE_POLICY", "fair")
# A run whose device is taken back has this long to reach an epoch's end; then it goes on from its checkpoint.
PREEMPTION_GRACE_S = env_int("FOREBAY_PREEMPTION_GRACE_S", 30)
# Webhooks go to public addresses over https, and to these networks (CIDR, comma-separated) also over http.
WEBHOOK_NETWORKS = env_networks("FOREBAY_WEBHOOK_NETWORKS")
LEASE_SECONDS = env_int("FOREBAY_LEASE_SECONDS", 15, least=3)

CSRF_FAILURE_VIEW = "web.views.csrf_failure"
APPEND_SLASH = False
# Requests per minute of one token or person; a quiet caller may send a minute's worth at once.
RATES = {
    "all": env_int("FOREBAY_RATE_ALL", 6000, least=1),
    "submit": env_int("FOREBAY_RATE_SUBMIT", 1200, least=1),
    "export": env_int("FOREBAY_RATE_EXPORT", 120, least=1),
}
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["web.authentication.BearerToken", "web.authentication.BrowserSession"],
    "DEFAULT_PERMISSION_CLASSES": ["cluster.api.gate.SignedIn", "web.idempotency.AnswerGate"],
    "DEFAULT_THROTTLE_CLASSES": ["web.throttling.FairUse"],
    "DEFAULT_PARSER_CLASSES": ["web.parsers.JsonParser", "web.parsers.YamlParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_METADATA_CLASS": None,
    "DEFAULT_SCHEMA_CLASS": "web.schema.ApiSchema",
    "EXCEPTION_HANDLER": "web.problems.handle",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Forebay",
    "DESCRIPTION": "Tune and train large models: studies, their trials, and the cluster they run on.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "web.schema.complete"],
    "ENUM_NAME_OVERRIDES": {"FaultMode": ["slow", "stop", "flap", "stall"], "MetricMode": ["min", "max"]},
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "persistAuthorization": False, "validatorUrl": None},
}
LOGGING = logging_settings(env_text("FOREBAY_LOG_LEVEL", "INFO").upper())
