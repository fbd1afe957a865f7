SELECT SUM(ol_amount) AS revenue FROM lines
WHERE ol_delivery_d >= '2016-01-01 00:00:00.000000' AND ol_delivery_d < '2017-01-01 00:00:00.000000'
  AND ol_amount > 600
