"""Addresses of the site's own pages."""

from django.urls import URLPattern, URLResolver, path

from web import pages, people

page_urls: list[URLPattern | URLResolver] = [
    path("sign-in", pages.sign_in, name="sign-in"),
    path("sign-out", pages.sign_out, name="sign-out"),
    path("login/<str:secret>", pages.login_link, name="login-link"),
    path("tokens", pages.tokens, name="tokens"),
    path("tokens/<uuid:token_id>/revoke", pages.revoke, name="revoke-token"),
    path("people", people.people, name="people"),
    path("people/change", people.change_member, name="change-member"),
    path("people/link", people.sign_in_link, name="sign-in-link"),
    path("password", people.password, name="password"),
    path("audit", pages.audit, name="audit"),
    path("audit/verify", pages.verify_audit, name="verify-audit"),
    path("preferences", pages.preferences, name="preferences"),
]
