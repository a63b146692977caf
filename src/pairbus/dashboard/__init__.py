"""The web page that shows a pairing's health, backlog and costs."""
