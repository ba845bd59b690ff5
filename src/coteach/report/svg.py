"""Matplotlib's SVG as a part of a page: no style that its policy forbids, no id twice, black in the page's ink."""

import html
import re

BLACK = re.compile(r'="(#000000|black)"')
LEFT_TO_THE_PAGE = ("font-family", "font-kerning")


def inline(svg: str, prefix: str, title: str) -> str:
    """The element alone, named for those who do not see it; `prefix` makes its ids its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<[^>]*?) style="([^"]*)"', lambda found: found[1] + attributes(found[2]), svg)
    svg = BLACK.sub('="currentColor"', svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    (box,) = re.findall(r'<svg[^>]* viewBox="([^"]*)"', svg)
    _, body = svg.split(">", 1)
    label = html.escape(title)
    return f'<svg class="drawn" viewBox="{box}" role="img" aria-label="{label}">{body.strip()}'


def attributes(style: str) -> str:
    """A style as attributes, which no policy forbids; of a font its size and weight."""
    found = ""
    for rule in filter(None, (rule.strip() for rule in style.split(";"))):
        name, _, value = (part.strip() for part in rule.partition(":"))
        if name == "font":
            weight = re.match(r"(bold|[1-9]00) ", value)
            found += f' font-weight="{weight[1]}"' if weight else ""
            (size,) = re.findall(r"([\d.]+)px", value)
            found += f' font-size="{size}"'
        elif name not in LEFT_TO_THE_PAGE:
            found += f' {name}="{value}"'
    return found
