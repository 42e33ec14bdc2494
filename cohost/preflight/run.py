"""All checks of a deploy, one after another."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from cohost.preflight.account import BOOTSTRAP, CREDENTIALS, check_bootstrap, check_credentials
from cohost.preflight.capacity import OFFERED, QUOTA, check_offered, check_quota, quotas_of
from cohost.preflight.endpoint import ENDPOINT, check_endpoint
from cohost.preflight.finding import Finding, guarded, unknown
from cohost.preflight.image import IMAGE, check_image
from cohost.preflight.models import check_on_hub, check_pushed
from cohost.preflight.money import PRICE, check_price

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import boto3

    from cohost.catalog.models import Catalog
    from cohost.pricing import PriceList


def run_checks(session: boto3.Session, region: str, catalog: Catalog, prices: PriceList) -> Iterator[Finding]:
    """Yield the outcome of each check as soon as it is known; the cheapest and most telling come first.

    Without an account, what needs one is not asked.

    Raises:
        ImageError: the catalog's image cannot be read.
    """
    yield guarded(PRICE, partial(check_price, catalog, prices, region))
    credentials = guarded(CREDENTIALS, partial(check_credentials, session, region))
    yield credentials
    for name, check in _of_the_account(session, region, catalog).items():
        if credentials.outcome == "pass":
            yield guarded(name, check)
        else:
            yield unknown(name, "needs an account that can be reached")
    for name, entry in catalog.models.items():
        if entry.from_hub:
            yield guarded(f"model {name}", partial(check_on_hub, name, entry))
        elif entry.pushed:
            yield guarded(f"model {name}", partial(check_pushed, session, catalog, name, entry))


def _of_the_account(session: boto3.Session, region: str, catalog: Catalog) -> dict[str, Callable[[], Finding]]:
    # Two checks go by the quotas, which are many pages.
    quotas = cache(partial(quotas_of, session, region))
    return {
        BOOTSTRAP: partial(check_bootstrap, session, region),
        OFFERED: partial(check_offered, quotas, region, catalog),
        QUOTA: partial(check_quota, quotas, session, region, catalog),
        IMAGE: partial(check_image, session, region, catalog),
        ENDPOINT: partial(check_endpoint, session, region, catalog),
    }
