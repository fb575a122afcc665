"""Web console: static files of a single-page application, without a build step.

The web door serves the files of this folder; there is no Python here. `app.js` starts the application and
chooses the page, `pages/` has one module per page.
"""
