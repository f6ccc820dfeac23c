"""A provider on loopback that answers, caches, bills, limits and fails as providers do.

`server.Standin` sends what a script makes of a request; `provider.Provider` is one that reads
requests strictly and bills answers; `batches.Batches` has the routes of files and batches.
"""
