"""cohere: rerank by the clients of its first and second API. Sluice offers no other endpoint of Cohere's."""

import cohere
from cases import KEY, RERANK, RERANK_URL, case, lacks, run

QUERY, DOCUMENTS = "a cat", ["the sea is deep", "cats purr", "iron"]


def ranked(client: cohere.Client | cohere.ClientV2) -> list[int]:
    """The order of the best two documents."""
    answer = client.rerank(model=RERANK, query=QUERY, documents=DOCUMENTS, top_n=2)
    assert answer.id
    scores = [result.relevance_score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2
    return [result.index for result in answer.results]


@case("rerank")
def rerank() -> str:
    first, second = (kind(api_key=KEY, base_url=RERANK_URL) for kind in (cohere.Client, cohere.ClientV2))
    orders = ranked(first), ranked(second)
    assert orders[0] == orders[1]
    returned = first.rerank(model=RERANK, query=QUERY, documents=[{"text": "cats"}, "iron"], return_documents=True)
    assert {result.document.text for result in returned.results} == {"cats", "iron"}
    return f"v1 {orders[0]}, v2 {orders[1]}"


@case("async")
async def asynchronous() -> str:
    async with cohere.AsyncClientV2(api_key=KEY, base_url=RERANK_URL) as client:
        answer = await client.rerank(model=RERANK, query=QUERY, documents=DOCUMENTS)
    return f"{len(answer.results)} documents"


@case("errors")
def errors() -> str:
    client = cohere.ClientV2(api_key=KEY, base_url=RERANK_URL)
    for fields, kind in (({"documents": []}, cohere.BadRequestError), ({"model": "x"}, cohere.NotFoundError)):
        try:
            client.rerank(**{"model": RERANK, "query": QUERY, "documents": DOCUMENTS} | fields)
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")
    try:
        cohere.ClientV2(api_key="wrong", base_url=RERANK_URL).rerank(model=RERANK, query=QUERY, documents=DOCUMENTS)
    except cohere.UnauthorizedError:
        return "BadRequestError, NotFoundError, UnauthorizedError"
    raise AssertionError("a wrong key was accepted")


lacks("text", "its chat speaks Cohere's own API, which Sluice does not offer")
run()
