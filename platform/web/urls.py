"""Every address of the site."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

import cluster.urls
import jobs.urls
import telemetry.urls
import tuning.urls
from web import health
from web import page_urls as own_pages
from web.api import tokens
from web.problems import unknown_address

api_urls: list[URLPattern | URLResolver] = [
    path("tokens", tokens.Tokens.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", tokens.OneToken.as_view(), name="api-token"),
    path("tickets", tokens.Tickets.as_view(), name="api-tickets"),
]
all_api_urls = [
    *api_urls,
    *jobs.urls.api_urls,
    *tuning.urls.api_urls,
    *cluster.urls.api_urls,
    *telemetry.urls.api_urls,
]
page_urls: list[URLPattern | URLResolver] = [
    *own_pages.page_urls,
    *jobs.urls.page_urls,
    *tuning.urls.page_urls,
    *cluster.urls.page_urls,
    *telemetry.urls.page_urls,
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.Metrics.as_view(), name="metrics"),
    path("api/schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    path("api/v1/", include(all_api_urls)),
    re_path(r"^api(?:/.*)?$", unknown_address, name="api-unknown"),
    path("admin/", admin.site.urls),
    *page_urls,
]

handler400 = "web.views.bad_request"
handler403 = "web.views.forbidden"
handler404 = "web.views.not_found"
handler500 = "web.views.server_error"
